#!/usr/bin/env python3
"""Tables and failures from what the first hour on a GPU saved.

    tools/gpu_results.py OUT [--document docs/performance.md]

OUT is what tests/gpu/hour wrote: results.tsv and a text for each item. Prints Markdown: what failed, our images per
second and PyTorch's, the slowest kernels, and the cores; with --document also between the two marks of that page, or at
its end. Exit status 1: something failed, or nothing was found.
"""
import argparse
import collections
import csv
import os
import re
import sys
import time

MARKS = ("<!-- gpu-hour -->\n", "<!-- /gpu-hour -->\n")
VARIANTS = ("", "recomputed", "stored", "no-blas", "no-graphs", "fed", "again")
MODES = ("eager", "graph", "compile")
UNITS = {"msecond": 1e-3, "ms": 1e-3, "usecond": 1e-6, "us": 1e-6, "nsecond": 1e-9, "ns": 1e-9, "Kbyte": 1e3,
         "Mbyte": 1e6, "Gbyte": 1e9}
NETWORKS = ("resnet50", "mobilenet_v2", "efficientnet_v2_m-forward", "efficientnet_v2_m", "mnist")


class Results:
    """The items of a folder: their statuses, and what they printed."""

    def __init__(self, folder):
        self.folder, self.status = folder, {}
        path = os.path.join(folder, "results.tsv")
        with open(path, encoding="utf-8") as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                if len(fields) == 4:  # a line may be cut short
                    self.status[fields[1]] = (fields[0], fields[2])

    def text(self, item):
        """What an item printed; empty if there is no such item."""
        if item not in self.status:
            return ""
        try:
            with open(os.path.join(self.folder, "%s.%s.txt" % (self.status[item][0], item)), errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def rate(self, item):
        """Images per second that `bench` or PyTorch printed, or None."""
        if self.status.get(item, ("", ""))[1] != "ok":
            return None
        text = self.text(item)
        found = re.search(r"images_per_second=([0-9.]+)", text) or re.search(r'"images_per_second": ([0-9.]+)', text)
        return float(found.group(1)) if found else None

    def failures(self):
        """(item, status, what it said of it) of all that is not well."""
        for item, (_, status) in self.status.items():
            bad = [line.strip() for line in self.text(item).splitlines()
                   if re.match(r"\s*not ok|Bail out|.*[Ee]rror|sim: |.*FAILED", line)]
            if status != "ok" or any(line.startswith("not ok") for line in bad):
                yield item, status if status != "ok" else "failed", bad[-1][:160] if bad else ""


def markdown(titles, rows):
    """A table; empty without rows."""
    if not rows:
        return ""
    lines = ["| %s |" % " | ".join(titles), "|%s" % ("---|" * len(titles))]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows]) + "\n\n"


def shown(rate):
    return "" if rate is None else "%.0f" % rate


def ours(results):
    rows = []
    for network in NETWORKS:
        rates = [results.rate("-".join(filter(None, (network, variant)))) for variant in VARIANTS]
        if any(rates):
            rows.append([network] + [shown(rate) for rate in rates])
    return markdown(["images/s"] + [variant or "as it is" for variant in VARIANTS], rows)


def beside_torch(results):
    rows = []
    for network in NETWORKS:
        modes = {mode: results.rate("torch-%s-%s" % (network, mode)) for mode in MODES}
        best = max((rate for rate in modes.values() if rate), default=None)
        own = results.rate(network + "-again") or results.rate(network)
        if best:
            rows.append([network, shown(own)] + [shown(modes[mode]) for mode in MODES] +
                        ["%.2f" % (own / best) if own else ""])
    return markdown(["images/s", "ours", "PyTorch eager", "CUDA graph", "compiled", "ours to its best"], rows)


def cores(results):
    rows = []
    for n in (1, 2, 4, 8, 16):
        row = [results.rate(name % n) for name in
               ("cores-mnist-%d", "torch-threads-mnist-%d", "cores-mobilenet_v2-%d", "threads-mobilenet_v2-%d",
                "torch-threads-mobilenet_v2-%d", "threads-resnet50-%d", "torch-threads-resnet50-%d")]
        if any(row):
            rows.append([str(n)] + [shown(rate) for rate in row])
    return markdown(["cores", "MNIST, devices", "PyTorch", "MobileNetV2, devices", "threads", "PyTorch",
                     "ResNet50, threads", "PyTorch"], rows)


def kernels(results, network):
    """The kernels that ncu saw, by their share of the time."""
    text = results.text("ncu-" + network)
    start = text.find('"ID"')
    if start < 0:
        return ""
    times, bytes_moved, count = (collections.Counter() for _ in range(3))
    for row in csv.DictReader(text[start:].splitlines()):
        name = re.sub(r"\(.*", "", row.get("Kernel Name") or "")
        try:
            value = float((row.get("Metric Value") or "").replace(",", ""))
        except ValueError:
            continue
        unit = UNITS.get(row.get("Metric Unit"), 1)
        if "duration" in (row.get("Metric Name") or ""):
            times[name] += value * unit
            count[name] += 1
        elif "bytes" in (row.get("Metric Name") or ""):
            bytes_moved[name] += value * unit
    total = sum(times.values())
    rows = [[name, str(count[name]), "%.3f" % (seconds * 1e3), "%.1f %%" % (100 * seconds / total),
             "%.2f" % (bytes_moved[name] / seconds / 1e12) if bytes_moved[name] else ""]
            for name, seconds in times.most_common(12)]
    return markdown([network + ", kernel", "launches", "ms", "share", "TB/s"], rows)


def device(results):
    """The GPU and PyTorch's version, as the first item printed them."""
    found = re.search(r"^gpu:0\s+(.*)$", results.text("devices"), re.M)
    torch = re.search(r"^torch (\S+)", results.text("versions"), re.M)
    return "%s%s" % (found.group(1) if found else "a GPU that is not known",
                     ", PyTorch " + torch.group(1) if torch else "")


def put(path, text):
    """Writes the text between the marks of a page, or at its end."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if MARKS[0] in page and MARKS[1] in page:
        page = page[:page.index(MARKS[0])] + MARKS[0] + text + page[page.index(MARKS[1]):]
    else:
        page += "\n## The first hour on a GPU\n\n" + MARKS[0] + text + MARKS[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="OUT")
    parser.add_argument("--document", help="a page that gets the tables")
    args = parser.parse_args()
    try:
        results = Results(args.folder)
    except OSError as error:
        print("gpu_results: %s" % error, file=sys.stderr)
        return 1
    failures = [["%s" % item, status, said.replace("|", "/")] for item, status, said in results.failures()]
    date = time.strftime("%Y-%m-%d", time.localtime(os.path.getmtime(os.path.join(args.folder, "results.tsv"))))
    text = "%s, %s: %d of %d items are well.\n\n" % (device(results), date, len(results.status) - len(failures),
                                                    len(results.status))
    text += markdown(["not well", "", "what it said"], failures)
    text += ours(results) + beside_torch(results) + kernels(results, "resnet50") + kernels(results, "mobilenet_v2")
    text += cores(results)
    print(text, end="")
    if args.document:
        put(args.document, text)
    return 1 if failures or not results.status else 0


if __name__ == "__main__":
    sys.exit(main())
