#!/usr/bin/env python3
"""mirrortrain beside TensorFlow and PyTorch in one run: windows of each take turns, medians are compared.
Writes the figures to a JSON file, and tables to a Markdown file beside it or into a document.

  bench.py --peer-python "ENV_TF/bin/python ENV_TORCH/bin/python" mobilenet_v2 resnet50

Sections: mnist (the convnet of the tutorial, from its files), mobilenet_v2, resnet50, resnet18, mobilenet_v3_large,
efficientnet_v2_m (frozen, forward), devices (two mirrored devices of one core against one of two), pipeline (photographs from their files),
latency (predictions of one image, beside LiteRT and ONNX Runtime as well). Without names: all of them.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import common
import latency
import mnist
import networks
import pipeline

SECTIONS = {"mnist": mnist.run, **{name: networks.run for name in networks.NETWORKS}, "devices": networks.run_devices,
            "pipeline": pipeline.run, "latency": latency.run}
BEGIN, END = "<!-- written by bench.py -->\n", "<!-- to here -->\n"
# Sections with a part of a document of their own.
BEGIN_OF = {"latency": "<!-- latency, written by bench.py -->\n"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=" ".join(SECTIONS))
    parser.add_argument("--ours", default="build/mirrortrain", help="the program's command")
    parser.add_argument("--data", default=os.environ.get("MIRT_MNIST_DIR"),
                        help="directory with MNIST's files; drawn digits and random pixels without it")
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON", ""),
                        help="interpreters with tensorflow, torch, onnxruntime or ai_edge_litert, separated by spaces or colons")
    parser.add_argument("--seconds", type=float, help="of one window; default 1 for mnist, 2 for latency, 5 for the others")
    parser.add_argument("--repeat", type=int, default=5, help="windows of each")
    parser.add_argument("--usual", action="store_true", help="only the networks' peers' usual settings: no compiling, no other memory formats")
    parser.add_argument("--quick", action="store_true", help="that, and few, short windows")
    parser.add_argument("--size", type=int, default=224, help="of the networks' images")
    parser.add_argument("--networks", type=lambda text: text.split(","), default=latency.NETWORKS,
                        help="of latency, separated by commas: %s" % ",".join(latency.NETWORKS))
    parser.add_argument("--limit", type=float, default=400, help="seconds a peer's setting may take to get warm")
    parser.add_argument("--out", default="build/bench.json")
    parser.add_argument("--document", help="a Markdown file whose parts between two marks are replaced by the tables")
    args = parser.parse_args()
    unknown = [name for name in args.sections if name not in SECTIONS]
    if unknown:
        parser.error("there is no section %s; there are %s" % (", ".join(unknown), ", ".join(SECTIONS)))
    unknown = [name for name in args.networks if name not in latency.NETWORKS]
    if unknown:
        parser.error("latency has no network %s; it has %s" % (", ".join(unknown), ", ".join(latency.NETWORKS)))
    if args.quick:
        args.usual, args.repeat, args.seconds = True, min(args.repeat, 2), min(args.seconds or 1, 1)
    return args


def write_document(path, parts):
    """`parts`: {mark before a part: its tables}"""
    with open(path) as file:
        text = file.read()
    for begin, tables in parts.items():
        head, found, rest = text.partition(begin)
        _, ended, tail = rest.partition(END)
        if not found or not ended:
            sys.exit("bench: %s has no part between %r and %r" % (path, begin.strip(), END.strip()))
        text = head + begin + tables + END + tail
    with open(path, "w") as file:
        file.write(text)


def main():
    args = parse()
    try:
        subprocess.run(args.ours.split() + ["--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("bench: %s does not run: %s" % (args.ours, error))
    load = os.getloadavg()[0]  # of others: our own work comes after
    peers = common.find_peers(args.peer_python)
    for package in common.PACKAGES:
        if package not in peers:
            common.note("%s is left out: no interpreter in --peer-python (PEER_PYTHON) has it" % package)

    about = "%s, %d cores, %s, load before %.1f" % (common.cpu_name(), common.cores(), time.strftime("%Y-%m-%d"), load)
    results, parts = {}, {}
    for name in args.sections or SECTIONS:
        common.note(name)
        results[name], table = SECTIONS[name](name, args, peers)
        begin = BEGIN_OF.get(name, BEGIN)
        parts[begin] = parts.get(begin, about + "\n") + "\n" + table
        print("\n" + table, flush=True)
    print(about)

    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    with open(args.out, "w") as file:
        json.dump({"cpu": common.cpu_name(), "cores": common.cores(), "load": load, "repeat": args.repeat, "quick": args.quick,
                   "sections": results}, file, indent=1)
    with open(os.path.splitext(args.out)[0] + ".md", "w") as file:
        file.write("\n".join(parts.values()))
    if args.document:
        write_document(args.document, parts)
    print("written to %s%s" % (args.out, " and " + args.document if args.document else ""))


main()
