"""Directories of as many photographs as ImageNet has, and tar shards; beside tf.data, torchvision and WebDataset.

python3 bench/imagenet.py DIRECTORY   (make bench-imagenet DIRECTORY=...)

DIRECTORY gets 1,281,167 links to 32 JPEGs of 25 to 500 KB in 1,000 classes, which takes minutes, unless it has them; PEER_PYTHON names
the peers' interpreters. Opening is the median of --repeat turns in which each opens once; MiB are those that opening adds to the
process. Rates are medians of windows over copies of 2,048 of the files, in a directory and in 8 shards, resized to 224."""
import argparse
import json
import os
import statistics
import subprocess

import common

FILES, BATCH = 1281167, 32
PEER = os.path.join(common.HERE, "peer_imagenet.py")
NAMES = {"ours": "mirrortrain", "tensorflow": "tf.data", "torch": "torchvision ImageFolder", "webdataset": "WebDataset"}


class Worker(common.Worker):
    def __init__(self, command, limit):
        super().__init__(command, limit)
        self.answer()
        self.signal(common.signal.SIGSTOP)


def commands(args, what, path, peers):
    """{name: command} of ours and of those peers that are installed."""
    found = {"ours": [args.ours, what, path, str(BATCH)]}
    for peer in peers:
        if peer in args.peers:
            found[peer] = [args.peers[peer], PEER, what, peer, path, str(BATCH)]
    return found


def opening(args, path):
    rows = {}
    for turn in range(args.repeat):
        for name, command in commands(args, "open", path, ("tensorflow", "torch")).items():
            result = subprocess.run(command, capture_output=True, text=True)
            line = next((line for line in result.stdout.splitlines() if line.startswith("{")), None)
            if line is None:
                common.note("%s is left out: %s" % (name, result.stderr.strip().splitlines()[-1:]))
                continue
            rows.setdefault(name, []).append(json.loads(line))
        common.note("turn %d: %s" % (turn + 1, ", ".join("%s %.1f s" % (name, lines[-1]["open"]) for name, lines in rows.items())))
    middle = {name: {key: statistics.median(line[key] for line in lines) for key in lines[0]} for name, lines in rows.items()}
    return common.markdown(("%d files in 1,000 classes" % args.files, "opened", "of that on cores", "memory", "first batch", "first of the next epoch"),
                           [(NAMES[name], "%.1f s" % row["open"], "%.1f s" % row["cpu"], "%.0f MiB" % row["mib"], "%.2f s" % row["first"], "%.2f s" % row["again"])
                            for name, row in middle.items()])


def rates(args, directory):
    runners = []
    for part, peers in ("some", ("tensorflow", "torch")), ("shards", ("webdataset",)):
        for name, command in commands(args, "rate", os.path.join(directory, part), peers).items():
            try:
                runners.append(Worker(command, args.limit))
                runners[-1].what = (NAMES[name], "shards" if part == "shards" else "directory")
            except (RuntimeError, OSError) as error:
                common.note("%s is left out: %s" % (name, error))
    try:
        common.take_turns(runners, args.repeat, args.seconds)
    finally:
        for runner in runners:
            runner.close()
    return common.markdown(("decoded, resized to 224", "from", "images/s", "lowest to highest"),
                           [(*runner.what, "%.0f" % statistics.median(runner.rates), "%.0f to %.0f" % (min(runner.rates), max(runner.rates)))
                            for runner in runners])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--ours", default="build/imagenet")
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--limit", type=float, default=900)
    parser.add_argument("--only", choices=("open", "rate"))
    args = parser.parse_args()
    args.peers = common.find_peers(os.environ.get("PEER_PYTHON", ""), common.PACKAGES + ("webdataset",))
    maker = next(iter(args.peers.values()), "python3")
    if not os.path.isdir(os.path.join(args.directory, "shards")):
        common.note("making %d files" % args.files)
        subprocess.run([maker, PEER, "make", args.directory, str(args.files)], check=True)
    print("%s, %d cores\n" % (common.cpu_name(), common.cores()))
    if args.only != "rate":
        print(opening(args, os.path.join(args.directory, "tree")))
    if args.only != "open":
        print(rates(args, args.directory))


main()
