#!/usr/bin/env python3
"""Kills runs with checkpoints at random moments, by SIGKILL or Ctrl-C. Every other one dies while a checkpoint
is written. Whatever the moment, a file under a checkpoint's name is complete, the run resumes from the newest
one, every step has the loss of the uninterrupted run, and the final model is bit-identical, on any number of
devices. test_kill.py [TRIALS [SEED]]"""
import glob
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checkpoint_files import whole
from tap import done, ok

PROGRAM = os.path.abspath(os.environ.get("MIRRORTRAIN", "build/mirrortrain"))
EVERY, STEPS = 20, 130
TRIALS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())


def command(directory, devices, *more):
    return [PROGRAM, "fit", "--devices", str(devices), "--replicas", "2", "--threads", "1", "--epochs", "3", "--max-steps", str(STEPS),
            "--log-steps", "--run", directory, "--checkpoint-every", str(EVERY), "--keep", "3"] + list(more)


def files_in(directory):
    try:
        return os.listdir(directory)
    except OSError:
        return []


def newest_in(directory):
    """The step of the newest checkpoint, going by the names; 0: there is none."""
    found = (re.match(r"ckpt_(\d+)\.safetensors$", p) for p in files_in(directory))
    return max([int(f.group(1)) for f in found if f], default=0)


def end_at_random(process, directory):
    """Ends it some time after it has written a random number of checkpoints, or when it has then half written a file;
    the signal. The moments go by what it has done, so that they are spread over the run on a machine of any speed."""
    name = random.choice((signal.SIGKILL, signal.SIGINT))
    start, began = newest_in(directory), time.time()
    wanted = random.randrange(min(start, STEPS - 1), STEPS, EVERY)
    while process.poll() is None and newest_in(directory) < wanted:
        time.sleep(0.001)
    each = (time.time() - began) / max(1, (wanted - start) // EVERY)  # seconds per checkpoint, as far as known
    if random.random() < 0.5:
        time.sleep(random.uniform(0, each if wanted > start else 0.2))
    else:
        while process.poll() is None and not any(p.endswith(".tmp") for p in files_in(directory)):
            time.sleep(0.0002)
    process.send_signal(name)
    return name


def losses(text, into, wrong):
    """Losses by step; the same step must always have the same."""
    for step, loss in re.findall(r"^step (\d+) loss (\S+)$", text, re.M):
        if into.setdefault(int(step), loss) != loss:
            wrong.append("step %s: %s, not %s" % (step, loss, into[int(step)]))


def main():
    random.seed(SEED)
    print("# seed %d" % SEED)
    base = tempfile.mkdtemp(prefix="mirt_kill.")
    reference, wrong, corrupt, lost, others = {}, [], [], [], []
    began = time.time()
    first = subprocess.run(command(base + "/ref", 2, "--save", base + "/ref.st"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds = time.time() - began
    losses(first.stdout, reference, wrong)
    if not ok(first.returncode == 0 and len(reference) == STEPS, "%d steps that nobody kills, in %.1f s" % (STEPS, seconds)):
        print("# " + first.stderr[-500:])
        return done()
    want = hashlib.sha256(open(base + "/ref.st", "rb").read()).hexdigest()
    kills, resumed, halves, trial = 0, 0, 0, 0
    while kills < TRIALS:
        trial += 1
        directory = "%s/run%d" % (base, trial)
        newest = 0
        for attempt in range(4):
            process = subprocess.Popen(command(directory, 2 if attempt == 0 else random.choice((1, 2)), "--resume"), stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            name = end_at_random(process, directory)
            out, err = process.communicate()
            kills += process.returncode in (-name, 128 + name)  # Ctrl-C lets the step end
            losses(out, reference, wrong)
            found = re.search(r"going on from .*: step (\d+)", err)
            if found:
                resumed += 1
                if int(found.group(1)) < newest:
                    lost.append("resumed from step %s, there was one of step %d" % (found.group(1), newest))
            elif newest and "step 0 loss" in out:
                lost.append("began anew, there was a checkpoint of step %d" % newest)
            for path in glob.glob(directory + "/ckpt_*"):
                if path.endswith(".tmp"):
                    halves += 1
                    continue
                step = whole(path)
                if isinstance(step, str):
                    corrupt.append(step)
                else:
                    newest = max(newest, step)
            if process.returncode == 0 or kills >= TRIALS or random.random() < 0.4:
                break
        last = subprocess.run(command(directory, random.choice((1, 2)), "--resume", "--save", directory + ".st"), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        losses(last.stdout, reference, wrong)
        found = re.search(r"going on from .*: step (\d+)", last.stderr)
        resumed += found is not None
        if (int(found.group(1)) if found else 0) != newest:
            lost.append("the last one resumed from %s, not from step %d" % (found and found.group(1), newest))
        left = [p for p in os.listdir(directory) if p.endswith(".tmp")]
        got = hashlib.sha256(open(directory + ".st", "rb").read()).hexdigest() if last.returncode == 0 else last.stderr[-300:]
        if got != want or left:
            others.append("%s %s" % (got, left))
        shutil.rmtree(directory, ignore_errors=True)
    ok(kills >= TRIALS and resumed > 0, "%d kills, %d runs that resumed, %d files half written" % (kills, resumed, halves))
    for name, problems in (("0 checkpoints are corrupt", corrupt), ("nothing is lost beyond the last checkpoint", lost),
                           ("every step has its loss", wrong), ("the model in the end is the one nobody killed, and nothing half written stays", others)):
        ok(not problems, name)
        for problem in problems[:5]:
            print("# " + problem)
    shutil.rmtree(base, ignore_errors=True)
    return done()


sys.exit(main())
