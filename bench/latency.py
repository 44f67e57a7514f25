"""Prediction of one image on one core and on two: milliseconds of the median call, and of the first.

Everyone gets an image of prepared floats and gives logits. Ours, LiteRT and ONNX Runtime load the network from a file;
PyTorch makes it. Loading and the first call are timed apart: of ONNX Runtime, preparing the network belongs to loading,
of all others to the first call. PyTorch runs in several ways; of each way the fastest setting takes part."""
import os
import signal
import statistics
import subprocess
import textwrap

import common

NETWORKS = ("mnist", "mobilenet_v2", "resnet50", "efficientnet_v2_b0", "efficientnet_v2_m")
WITH_WINOGRAD = NETWORKS[2:]  # those with 3x3 convolutions of stride 1 and enough channels
PACKAGES = ("torch", "tensorflow", "ai_edge_litert", "onnxruntime")
SCRIPT = os.path.join(common.HERE, "peer_latency.py")
# Ways of PyTorch, and their settings; after the first only in a full run.
TORCH_MODES = {"eager": ["channels_last", ""], "frozen trace": ["trace channels_last", "trace"],
               "compiled": ["compile freezing channels_last"]}
OURS = "mirrortrain"


def size_of(name, args):
    return 28 if name == "mnist" else args.size


def program(args):
    return os.path.join(os.path.dirname(args.ours.split()[0]) or ".", "latency")


class Caller(common.Worker):
    """A process that has made its first prediction, or a RuntimeError."""

    def __init__(self, name, mode, command, args, cores):
        super().__init__(command, args.limit, cores)
        self.name, self.mode, self.times = name, mode, []
        try:
            version = self.answer().get("version")
            self.start_mb = self.peak_mb()  # before there is a network
            row = self.ask(0.2 if args.quick else 0.5)
        except RuntimeError:
            self.close()
            raise
        self.name = name % version if version else name.replace(" %s", "")
        self.load_ms, self.first_ms, self.tried_ms = row["load_ms"], row["first_ms"], row["ms"]
        common.note("%s [%s]: first %.1f ms, then %.3f ms" % (self.name, mode, self.first_ms, self.tried_ms))

    def window(self, seconds):
        self.times.append(super().window(seconds)["ms"])

    def row(self):
        peak = self.peak_mb()
        return {"name": self.name, "mode": self.mode, "ms": round(statistics.median(self.times), 5),
                "lowest": round(min(self.times), 5), "highest": round(max(self.times), 5), "first_ms": round(self.first_ms, 3),
                "load_ms": round(self.load_ms, 3), "peak_mb": peak and round(peak, 1),
                "start_mb": self.start_mb and round(self.start_mb, 1)}


def try_to_start(start, what):
    try:
        return start()
    except (RuntimeError, OSError) as error:
        common.note("%s is left out: %s" % (what, error))
        return None


def make_file(name, ending, command, limit):
    """The network in a file that `command` + [file] writes, unless it is there; None when that fails."""
    directory = os.path.join(os.path.dirname(name), "latency_networks")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, os.path.basename(name) + ending)
    if os.path.exists(path) and ending != ".safetensors":
        return path
    new = os.path.join(directory, "new" + ending)
    try:
        result = subprocess.run(command + [new], capture_output=True, text=True, errors="replace", timeout=limit)
        failed = result.returncode and (result.stderr.strip().splitlines() or ["status %d" % result.returncode])[-1][:200]
    except (OSError, subprocess.TimeoutExpired) as error:
        failed = str(error)
    if failed:
        common.note("%s cannot be made: %s" % (path, failed))
        return None
    os.replace(new, path)
    return path


def make_files(name, args, peers):
    """{ending: path} of those that can be made."""
    size, files = size_of(name, args), {}
    base = os.path.join(os.path.dirname(program(args)), "%s_%d" % (name, size))
    commands = {".safetensors": [program(args), "save", name, str(size)]}
    if "tensorflow" in peers:
        commands[".tflite"] = [peers["tensorflow"], SCRIPT, "--network", name, "--size", str(size), "--convert"]
    if "torch" in peers and "onnxruntime" in peers:
        commands[".onnx"] = [peers["torch"], SCRIPT, "--network", name, "--size", str(size), "--convert"]
    for ending, command in commands.items():
        files[ending] = make_file(base, ending, command, args.limit)
    return {ending: path for ending, path in files.items() if path}


def open_torch(name, args, python, threads, cores, trials):
    """The fastest setting of each way."""
    opened = []
    for way, modes in TORCH_MODES.items():
        best = None
        if args.usual and way != "eager":
            continue
        for mode in modes[:1] if args.usual else modes:
            command = [python, SCRIPT, "--peer", "torch", "--network", name, "--size", str(size_of(name, args)), "--threads",
                       str(threads), "--mode", mode]
            one = try_to_start(lambda: Caller("PyTorch %%s, %s" % way, mode, command, args, cores), "PyTorch [%s]" % mode)
            if not one:
                continue
            trials.append({"peer": one.name, "mode": mode, "threads": threads, "ms": one.tried_ms, "first_ms": one.first_ms,
                           "load_ms": one.load_ms, "peak_mb": one.peak_mb()})
            if best and best.tried_ms <= one.tried_ms:
                one.close()
                continue
            if best:
                best.close()
            best = one
        opened += [best] if best else []
    return opened


def open_all(name, args, peers, files, threads, cores, trials):
    """Those that start; ours first."""
    def peer(title, package, ending):
        command = [peers[package], SCRIPT, "--peer", "onnxruntime" if ending == ".onnx" else "litert", "--network", name, "--size",
                   str(size_of(name, args)), "--threads", str(threads), "--file", files[ending]]
        return try_to_start(lambda: Caller(title + " %s", "", command, args, cores), title)
    ours = [program(args), files[".safetensors"], str(threads)]
    opened = [try_to_start(lambda: Caller(OURS, "", ours, args, cores), "ours")]
    if not args.usual and name in WITH_WINOGRAD:
        opened.append(try_to_start(lambda: Caller(OURS + ", winograd", "", ours + ["winograd"], args, cores), "ours, winograd"))
    if "torch" in peers:
        opened += open_torch(name, args, peers["torch"], threads, cores, trials)
    if ".tflite" in files:
        opened.append(peer("LiteRT", "ai_edge_litert" if "ai_edge_litert" in peers else "tensorflow", ".tflite"))
    if ".onnx" in files:
        opened.append(peer("ONNX Runtime", "onnxruntime", ".onnx"))
    return [one for one in opened if one]


def compare(rows):
    """What ours takes of the best of some, in time and in memory."""
    result = {}
    if not rows or rows[0]["name"] != OURS:
        return result
    groups = {"torch_and_litert": ("PyTorch", "LiteRT"), "onnxruntime": ("ONNX Runtime",), "all": ("PyTorch", "LiteRT", "ONNX Runtime")}
    for group, names in groups.items():
        for value in ("ms", "peak_mb", "first_ms"):
            others = [row[value] for row in rows if row["name"].startswith(names) and row[value]]
            if others and rows[0][value]:
                result.setdefault(group, {})[value] = round(rows[0][value] / min(others), 3)
    return result


def table(name, args, rows, threads, seconds):
    size, ours = size_of(name, args), rows[0]["ms"] if rows and rows[0]["name"] == OURS else None
    number = lambda value, form: "" if value is None else form % value
    text = "%s, one image of %d px, %d core%s; median of %d windows of %g s:\n\n" % (
        name, size, threads, "s" * (threads > 1), args.repeat, seconds)
    head = ("", "ms", "lowest to highest", "ours is", "first call, ms", "loading, ms", "peak memory, MB", "before loading")
    return text + common.markdown(head, [
        (row["name"] + (", channels_last" if "channels_last" in row["mode"] else ""), "%.4g" % row["ms"], "%.4g to %.4g" % (row["lowest"], row["highest"]),
         "%.2fx" % (row["ms"] / ours) if ours and not row["name"].startswith(OURS) else "", "%.4g" % row["first_ms"],
         "%.4g" % row["load_ms"], number(row["peak_mb"], "%.1f"), number(row["start_mb"], "%.1f")) for row in rows])


def sentence(ratios):
    """The project's targets for two cores are 0.8, 1.2 and 0.5."""
    parts = ["%.2f times the time of %s" % (ratios[group]["ms"], names) for group, names in
             (("torch_and_litert", "the faster of PyTorch and LiteRT"), ("onnxruntime", "ONNX Runtime")) if group in ratios]
    if ratios.get("all", {}).get("peak_mb"):
        parts.append("%.2f times the least memory of a peer" % ratios["all"]["peak_mb"])
    return "\n%s\n" % "\n".join(textwrap.wrap("Ours takes %s." % ", ".join(parts), 120)) if parts else ""


def run(section, args, _):
    """The figures of all networks, and their tables."""
    peers = common.find_peers(args.peer_python, PACKAGES)
    for package in PACKAGES:
        if package not in peers and package not in common.PACKAGES:
            common.note("%s is left out: no interpreter in --peer-python (PEER_PYTHON) has it" % package)
    seconds, results, text = args.seconds or 2, {}, ""
    usable = common.separate_cores()
    for name in args.networks:
        files = make_files(name, args, peers)
        if ".safetensors" not in files:
            continue
        for threads in [count for count in (1, 2) if count <= (len(usable) or common.cores())]:
            common.note("latency of %s, threads: %d" % (name, threads))
            trials, opened = [], []
            try:
                opened = open_all(name, args, peers, files, threads, set(usable[:threads]), trials)
                common.take_turns(opened, args.repeat, seconds)
                rows = [one.row() for one in opened]
            finally:
                for one in opened:
                    one.close()
            ratios = compare(rows)
            results["%s, threads: %d" % (name, threads)] = {"network": name, "threads": threads, "size": size_of(name, args), "seconds": seconds,
                                                   "ours_to_best": ratios, "table": rows, "peer_settings": trials}
            text += ("\n" if text else "") + table(name, args, rows, threads, seconds) + sentence(ratios)
    return results, text
