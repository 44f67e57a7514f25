"""The networks of keras.applications: a full training step with Adam on a batch in memory, or a frozen forward pass.

Ours takes pixels as bytes and preprocesses them in every step; the peers are given floats. A rate is of the median step
of a window, and the median of windows. The peers train torchvision's (or timm's) and Keras's own networks with 1000 classes,
each setting in a process of its own; of the settings of a precision the fastest takes part.
"""
import os
import re
import signal
import statistics
import subprocess

import common


class Network:
    def __init__(self, batch, flags=(), forward=False):
        self.batch, self.flags, self.forward = batch, list(flags), forward


NETWORKS = {
    "mobilenet_v2": Network(32),
    "resnet50": Network(16),
    "resnet18": Network(16),
    "mobilenet_v3_large": Network(16),
    "efficientnet_v2_m": Network(16, ["--no-top", "--forward"], forward=True),
}

# The settings that are tried, by precision; those after the first only in a full run.
TRAIN_MODES = {
    "tensorflow": {"float32": ["", "pages", "jit"], "bf16": ["bf16"]},
    "torch": {"float32": ["channels_last", "channels_last pages", "channels_last compile", ""],
              "bf16": ["channels_last bf16", "channels_last bf16 pages", "channels_last bf16 compile"]},
}
FORWARD_MODES = {
    "tensorflow": {"float32": ["", "pages", "jit"]},
    "torch": {"float32": ["channels_last", "channels_last pages", "channels_last compile"],
              "bf16": ["channels_last bf16"]},
}


class Ours:
    """The program in one setting, a process a window."""

    def __init__(self, args, section, dtype, flags=(), name="mirrortrain"):
        network = NETWORKS[section]
        self.name, self.dtype, self.mode, self.rates, self.fields = name, dtype, "", [], {}
        self.command = args.ours.split() + ["bench", "--model", section, "--size", str(args.size), "--batch",
                                            str(network.batch), *network.flags, *flags]
        self.command += ["--dtype", dtype] if dtype != "float32" else []

    def window(self, seconds):
        result = subprocess.run(self.command + ["--seconds", str(max(1, round(seconds)))], capture_output=True, text=True)
        found = re.search(r"^bench: (.*)$", result.stdout, re.M)
        if result.returncode or not found:
            raise RuntimeError("%s: %s" % (" ".join(self.command), result.stderr.strip() or "no bench line"))
        self.fields = dict(pair.split("=", 1) for pair in found.group(1).split())
        self.rates.append(float(self.fields["images_per_second"]))
        self.peak_mb = float(self.fields["peak_mb"])

    def starts(self):
        """Whether it runs at all; says why not."""
        try:
            self.window(1)
        except RuntimeError as error:
            common.note("ours, %s, is left out: %s" % (self.dtype, error))
            return False
        self.rates = []
        return True

    def close(self):
        pass


class Peer(common.Worker):
    """A peer in one setting, in a process that is stopped between windows: waiting threads may spin."""

    def __init__(self, args, section, package, python, dtype, mode):
        network = NETWORKS[section]
        self.dtype, self.mode, self.name = dtype, mode, package
        command = [python, os.path.join(common.HERE, "peer_networks.py"), "--peer", package, "--network", section,
                   "--mode", mode, "--batch", str(network.batch), "--size", str(args.size), "--threads", str(common.cores()),
                   "--least", "2" if args.quick else "3"] + (["--forward"] if network.forward else [])
        super().__init__(command, args.limit)

    def starts(self):
        try:
            row = self.answer()
        except RuntimeError as error:
            common.note("%s %s [%s] is left out: %s" % (self.name, self.dtype, self.mode, error))
            self.close()
            return False
        self.name = "%s %s" % ("PyTorch" if self.name == "torch" else "TensorFlow", row["version"])
        self.first = row["images_per_second"]
        self.signal(signal.SIGSTOP)
        common.note("%s %s [%s]: %.2f images/s, %.0f MB" % (self.name, self.dtype, self.mode, self.first, row["peak_mb"]))
        return True

    def window(self, seconds):
        self.peak_mb = super().window(seconds)["peak_mb"]


def best_of(args, section, package, python, dtype, modes, trials):
    """The fastest of the settings, started; None when none of them runs."""
    best = None
    for mode in modes[:1] if args.usual else modes:
        peer = Peer(args, section, package, python, dtype, mode)
        if not peer.starts():
            continue
        trials.append({"peer": peer.name, "dtype": dtype, "mode": mode, "images_per_second": peer.first})
        if best and best.first >= peer.first:
            peer.close()
            continue
        if best:
            best.close()
        best = peer
    return best


def best_rate(rows, dtype, ours):
    rates = [row["images_per_second"] for row in rows if row["dtype"] == dtype and row["name"].startswith("mirrortrain") == ours]
    return max(rates, default=None)


def run(section, args, peers):
    """One network's figures, and their table."""
    network = NETWORKS[section]
    seconds = args.seconds or 5
    runners = [ours for ours in (Ours(args, section, "float32"), Ours(args, section, "bf16")) if ours.starts()]
    trials = []
    try:
        for package, python in peers.items():
            for dtype, modes in (FORWARD_MODES if network.forward else TRAIN_MODES)[package].items():
                peer = best_of(args, section, package, python, dtype, modes, trials)
                runners += [peer] if peer else []
        common.take_turns(runners, args.repeat, seconds)
    finally:
        for runner in runners:
            runner.close()

    rows = [{"name": r.name, "dtype": r.dtype, "mode": r.mode, **common.rates_of(r), "peak_mb": round(r.peak_mb, 1),
             **({"bench": r.fields} if isinstance(r, Ours) else {})} for r in runners]
    for row in rows:
        own = best_rate(rows, row["dtype"], True)
        if own and not row["name"].startswith("mirrortrain"):
            row["ours_to_this"] = round(own / row["images_per_second"], 3)
    ratios = {}
    for dtype in ("float32", "bf16"):
        own, other = best_rate(rows, dtype, True), best_rate(rows, dtype, False)
        if own and other:
            ratios[dtype] = round(own / other, 3)
    text = "%s, %d px, batch %d, %s; median of %d windows of %g s:\n\n" % (
        section, args.size, network.batch, "forward, frozen, without its top" if network.forward else "training step with Adam", args.repeat,
        seconds)
    text += common.markdown(("", "dtype", "images/s", "lowest to highest", "ours is", "peak memory"), [
        (row["name"] + (", " + row["mode"] if row["mode"] else ""), row["dtype"], "%.1f" % row["images_per_second"],
         "%.1f to %.1f" % (row["lowest"], row["highest"]), "%.2fx" % row["ours_to_this"] if "ours_to_this" in row else "",
         "%.2f GB" % (row["peak_mb"] / 1e3)) for row in rows])
    return {"batch": network.batch, "size": args.size, "forward": network.forward, "seconds": seconds, "ratios_to_best_peer": ratios,
            "table": rows, "peer_settings": trials}, text


def run_devices(section, args, peers):
    """Two mirrored devices of half of the cores each against one device of all."""
    name, seconds, each = "mobilenet_v2", args.seconds or 5, max(1, common.cores() // 2)
    runners = [Ours(args, name, "float32", ["--devices", str(count), "--threads", str(threads)],
                    "%d device%s of %d core%s" % (count, "s" * (count > 1), threads, "s" * (threads > 1)))
               for count, threads in ((1, 2 * each), (2, each))]
    if not all(runner.starts() for runner in runners):
        return {}, ""
    common.take_turns(runners, args.repeat, seconds)
    one, two = (statistics.median(runner.rates) for runner in runners)
    rows = [{"name": runner.name, **common.rates_of(runner), "peak_mb": runner.peak_mb} for runner in runners]
    text = "%s, batch %d, mirrored devices:\n\n" % (name, NETWORKS[name].batch)
    text += common.markdown(("", "images/s", "lowest to highest", "peak memory"), [
        (row["name"], "%.1f" % row["images_per_second"], "%.1f to %.1f" % (row["lowest"], row["highest"]), "%.2f GB" % (row["peak_mb"] / 1e3))
        for row in rows])
    text += "\nTwo devices reach %.3f of one.\n" % (two / one)
    return {"table": rows, "two_to_one": round(two / one, 3)}, text
