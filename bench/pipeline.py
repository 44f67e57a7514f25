"""Photographs: decoded and resized, augmented, and trained on from their files; beside tf.data, torchvision and Keras.

MIRT_CATSDOGS_DIR has train/ and validation/ with a directory for each class, MIRT_WEIGHTS_DIR the ImageNet weights of MobileNetV2
0.35. A rate is of whole epochs, and the median of windows; training is by the program and by fit, without a cache of images.
Frozen: an epoch after the first, when ours has kept the features. Waiting: the share of MobileNetV2 1.0's training, from random
weights, in which there was no batch."""
import os
import re
import signal
import statistics
import subprocess

import common

SIZE, BATCH, AUGMENT = 224, 32, "flip:horizontal,rotation:0.1,zoom:0.1"
KINDS = {"decode": "decoded, resized to 224", "augment": "flipped, rotated, zoomed as well", "train": "MobileNetV2 0.35 trained end to end",
         "frozen": "its head trained alone, epochs after the first", "wait": "MobileNetV2 1.0 trained"}
TURBO = "mirrortrain, TurboJPEG"


class Worker(common.Worker):
    def __init__(self, command, limit):
        super().__init__(command, limit)
        self.name, self.waited = self.answer()["name"], []
        self.signal(signal.SIGSTOP)

    def window(self, seconds):
        self.waited.append(super().window(seconds).get("waited", 0))


class Ours:
    """The program's fit, as often as windows are wanted."""

    def __init__(self, args, photos, weights, frozen):
        self.name, self.rates, self.frozen, self.images = "mirrortrain", [], frozen, count_images(os.path.join(photos, "train"))
        self.command = args.ours.split() + ["fit", "--model", "mobilenet_v2", "--alpha", "0.35", "--data", photos, "--weights", weights, "--batch", str(BATCH),
                                            "--lr", "0.0001", "--no-cache"] + (["--freeze", "base"] if frozen else [])

    def seconds(self, epochs):
        result = subprocess.run(self.command + ["--epochs", str(epochs)], capture_output=True, text=True)
        found = re.search(r"^final: .*images_per_second=(\S+) seconds=(\S+)", result.stdout, re.M)
        if not found:
            raise RuntimeError("fit: %s" % result.stderr.strip())
        return float(found[1]), float(found[2])

    def window(self, seconds):
        if not self.frozen:
            return self.rates.append(self.seconds(1)[0])
        more = 400
        self.rates.append(more * self.images / (self.seconds(1 + more)[1] - self.seconds(1)[1]))

    def close(self):
        pass


def count_images(directory):
    return sum(name.lower().endswith((".jpg", ".jpeg", ".png", ".bmp", ".gif")) for _, _, names in os.walk(directory) for name in names)


def open_all(kind, args, peers, photos, weights):
    """Those that start."""
    ours = os.path.join(os.path.dirname(args.ours.split()[0]) or ".", "pipeline")
    more = {"decode": [], "augment": [AUGMENT], "wait": ["train"]}
    if kind in more:
        starts = [lambda program=program: Worker([program, os.path.join(photos, "train"), str(SIZE), str(BATCH)] + more[kind], args.limit)
                  for program in (ours, ours + "_turbojpeg") if os.path.exists(program) and (kind != "wait" or program == ours)]
    else:
        starts = [lambda: Ours(args, photos, weights, kind == "frozen")]
    starts += [] if kind == "wait" else [lambda package=package, python=python: Worker(
        [python, os.path.join(common.HERE, "peer_pipeline.py"), package, photos, str(SIZE), str(BATCH), kind, weights], args.limit)
        for package, python in peers.items() if package == "tensorflow" or kind in ("decode", "augment")]
    runners = []
    for start in starts:
        try:
            runners.append(start())
        except (RuntimeError, OSError) as error:
            common.note("%s: one is left out: %s" % (kind, error))
    return runners


def run(section, args, peers):
    photos = os.environ.get("MIRT_CATSDOGS_DIR", "data/cats-vs-dogs")
    weights = os.path.join(os.environ.get("MIRT_WEIGHTS_DIR", "data/weights"), "mobilenet_v2_0.35_224_imagenet_notop.safetensors")
    if not os.path.isdir(os.path.join(photos, "train")):
        common.note("no photographs in MIRT_CATSDOGS_DIR=%s" % photos)
        return {}, ""
    results, rows = {}, []
    for kind, text in KINDS.items():
        if kind in ("train", "frozen") and not os.path.exists(weights):
            common.note("no weights in MIRT_WEIGHTS_DIR: %s" % weights)
            continue
        runners = open_all(kind, args, peers, photos, weights)
        try:
            common.take_turns(runners, min(args.repeat, 3) if kind == "wait" else args.repeat, args.seconds or 3)
        finally:
            for runner in runners:
                runner.close()
        results[kind] = {runner.name: common.rates_of(runner) for runner in runners}
        if kind == "wait":
            waited = statistics.median(runners[0].waited) if runners else 0
            results[kind] = {runner.name: {**results[kind][runner.name], "waited": waited} for runner in runners}
            rows += [(text, runner.name, "%.0f" % results[kind][runner.name]["images_per_second"], "", "waits for input %.2f %% of the time" % (100 * waited), "") for runner in runners]
            continue
        for name, rate in results[kind].items():
            ratios = ["" if name in ("mirrortrain", TURBO) or own not in results[kind] else
                      "%.2fx" % (results[kind][own]["images_per_second"] / rate["images_per_second"]) for own in ("mirrortrain", TURBO)]
            rows.append((text, name, "%.0f" % rate["images_per_second"], "%.0f to %.0f" % (rate["lowest"], rate["highest"]), *ratios))
    return results, "Photographs, batch %d; median of %d windows:\n\n" % (BATCH, args.repeat) + common.markdown(
        ("", "", "images/s", "lowest to highest", "ours is", "with TurboJPEG"), rows)
