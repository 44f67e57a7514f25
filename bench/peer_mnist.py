"""What the peer benchmarks share: data, time windows, the report."""
import argparse
import gzip
import json
import os
import statistics
import sys
import time

import numpy as np

# Both peers free and fault in their large tensors at every step unless malloc keeps the pages;
# PyTorch trains half as fast again with this. malloc reads it before main, hence the second start.
KEEP_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 32)}
if not KEEP_PAGES.items() <= os.environ.items():
    os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, **KEEP_PAGES})


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batch", default="64,128", help="global batches, comma-separated")
    parser.add_argument("--seconds", type=float, default=4, help="measuring time of the best mode")
    parser.add_argument("--trial", type=float, default=0.4, help="measuring time of every mode")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--mnist", help="directory with MNIST's files; random pixels without it")
    parser.add_argument("--serve", action="store_true",
                        help="then answer every line 'BATCH SECONDS MODE' on stdin with that mode's rate")
    return parser


def digits(directory, count=6400):
    """Pixels [count, 28, 28, 1] in 0..1 as float32, labels int64."""
    if not directory:
        random = np.random.default_rng(1)
        return random.random((count, 28, 28, 1), np.float32), random.integers(0, 10, count)

    def read(name, header):
        path = os.path.join(directory, name)
        with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as file:
            return np.frombuffer(file.read()[header:], np.uint8)
    x = read("train-images-idx3-ubyte", 16)[:count * 784].reshape(-1, 28, 28, 1)
    return x.astype(np.float32) / 255, read("train-labels-idx1-ubyte", 8)[:count].astype(np.int64)


def window(run, batch, seconds, windows=3):
    """Median images per second of `run`, which trains at least the steps it is given and returns
    how many that were, over several short windows."""
    run(1)
    begin = time.perf_counter()
    steps = run(8)
    steps = max(1, int(steps * seconds / windows / (time.perf_counter() - begin)))
    rates = []
    for _ in range(windows):
        begin = time.perf_counter()
        done = run(steps)
        rates.append(done * batch / (time.perf_counter() - begin))
    return statistics.median(rates)


def measure(peer, version, args, modes, extra=()):
    """Tries every mode of `modes` ({name: make(batch) -> run}) briefly, measures the best longer;
    `extra` rows are (batch, mode, rate) measured elsewhere."""
    runs = {}

    def report(batch, mode, rate, **more):
        print(json.dumps(dict(peer=peer, version=version, mode=mode, batch=batch,
                              images_per_second=round(rate, 1), **more)), flush=True)

    for batch in map(int, args.batch.split(",")):
        trials = []
        for mode, make in modes.items():
            try:
                run = make(batch)
                rate = window(run, batch, args.trial)
            except Exception as error:  # a mode that this machine lacks is not the peer's best
                print("%s %s: %s" % (peer, mode, str(error).strip().split("\n")[0][:200]), file=sys.stderr)
                continue
            trials.append((rate, mode))
            runs[batch, mode] = run
            report(batch, mode, rate)
        for other, mode, rate in extra:
            if other == batch:
                report(batch, mode, rate)
        # The two fastest again: a short trial on a busy machine may mislead.
        finals = [(window(runs[batch, mode], batch, args.seconds / 2, 5), mode) for _, mode in sorted(trials)[-2:]]
        for rate, mode in sorted(finals):
            report(batch, mode, rate, final=True, best=rate == max(finals)[0])
    if args.serve:
        print("ready", flush=True)
        for line in sys.stdin:
            batch, seconds, mode = line.strip().split(" ", 2)
            # One window: the caller takes the median, and a call of Keras' fit costs too much for short ones.
            print(window(runs[int(batch), mode], int(batch), float(seconds), 1), flush=True)
