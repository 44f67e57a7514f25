#!/usr/bin/env python3
"""Kills or stops one of several processes that train together, at random moments.

    tests/kill_processes.py [NUMBER [SEED]]

Every time all processes have to end within the time limit and three seconds, the one that failed has to be named, and
another number of processes has to resume the run and reach the weights of a run without a break. After half of the
kills mpirun ends and names processes; after the others it leaves that to the library (--enable-recovery).
"""
import glob
import hashlib
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import tap
from checkpoint_files import whole

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT, MORE = 3, 3  # seconds
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                   OMPI_MCA_btl_vader_single_copy_mechanism="none")
# Each process writes its number before it becomes the program.
KINDS = (("SIGKILL", signal.SIGKILL, []), ("SIGKILL, recovery", signal.SIGKILL, ["--enable-recovery"]),
         ("SIGSTOP", signal.SIGSTOP, []), ("SIGSTOP", signal.SIGSTOP, []))
WRAPPED = 'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"'


class Job:
    """A fit of several processes in a directory."""

    def __init__(self, program, place, processes, *flags, launching=()):
        self.processes = processes
        self.pids = os.path.join(place, "pid")
        for rank in range(processes):
            if os.path.exists("%s.%d" % (self.pids, rank)):
                os.remove("%s.%d" % (self.pids, rank))
        self.errors = open(os.path.join(place, "err.txt"), "w+", encoding="utf-8")
        self.began = time.monotonic()
        self.launcher = subprocess.Popen(
            ["mpirun", *launching, "-n", str(processes), "sh", "-c", WRAPPED, self.pids, program, "fit",
             "--replicas", "6", "--threads", "1", "--batch", "128", "--epochs", "2", "--checkpoint-every", "30",
             "--timeout", str(LIMIT),
             "--run", os.path.join(place, "run"), "--save", os.path.join(place, "weights.safetensors"), *flags],
            stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors, env=ENVIRONMENT)

    def pid(self, rank):
        """None: it has not begun."""
        try:
            with open("%s.%d" % (self.pids, rank), encoding="ascii") as f:
                text = f.read().strip()
            return int(text) if text else None
        except FileNotFoundError:
            return None

    def wait(self, seconds):
        """Whether the launcher has ended by then."""
        try:
            self.launcher.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    def said(self):
        self.errors.flush()
        self.errors.seek(0)
        return self.errors.read()

    def left(self):
        """The processes that still run; they are killed."""
        still = []
        for rank in range(self.processes):
            pid = self.pid(rank)
            try:
                with open("/proc/%d/stat" % pid, encoding="ascii") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] != "Z":
                        still.append(rank)
                        os.kill(pid, signal.SIGKILL)
            except (OSError, TypeError):
                pass
        return still


def digest(place):
    with open(os.path.join(place, "weights.safetensors"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def end(job, seconds):
    """Ends a job that ought to have ended by itself; returns whether it had."""
    ended = job.wait(seconds)
    if not ended:
        job.launcher.kill()
        job.launcher.wait()
    return ended


def events_of(place):
    """The events of the run's log so far."""
    log = os.path.join(place, "run", "log.jsonl")
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as f:
        return re.findall(r'"event":"(\w+)"(?:.*"batch":(\d+))?', f.read())


def is_validating(place):
    """Whether validation begins soon; the last line of an epoch's steps is of batch 85 to 94."""
    events = events_of(place)
    return bool(events) and events[-1][0] == "step" and int(events[-1][1]) >= 85


def is_saving(place):
    return bool(glob.glob(os.path.join(place, "run", "*.tmp")))


def strike(job, rank, moment, how, ready):
    """Sends the signal after the moment and once ready() is true; False: the run was over before."""
    while time.monotonic() < job.began + moment or job.pid(rank) is None or not ready():
        if job.launcher.poll() is not None:
            return False
        time.sleep(0.0005)
    try:
        os.kill(job.pid(rank), how)
    except ProcessLookupError:
        return False
    return job.launcher.poll() is None


def phase_of(place):
    """How far a run has come."""
    if not os.path.exists(os.path.join(place, "run", "log.jsonl")):
        return "joining"
    events = events_of(place)
    event, batch = events[-1] if events else ("", "")
    line = "after a line of %s%s" % (event, ", batch " + batch if event == "step" else "") if event else "beginning"
    return "saving, " + line if is_saving(place) else line


def is_named(said, rank, joining, by_launcher):
    """Whether the library or, if it ends processes, mpirun names the process. While processes join, MPI cannot say
    which one is missing."""
    return (re.search(r"process %d \(" % rank, said) is not None or joining and "has not joined" in said or
            by_launcher and re.search(r"process rank %d\b" % rank, said) is not None)


def one(program, draw, seconds, expected, times):
    """None: the signal came after training."""
    kind, how, launching = draw.choice(KINDS)
    processes = draw.randint(2, 4)
    rank = draw.randrange(processes)
    moment = draw.uniform(0, seconds[processes])
    condition = draw.choice((None, None, is_validating, is_saving))
    with tempfile.TemporaryDirectory() as place:
        job = Job(program, place, processes, launching=launching)
        if not strike(job, rank, moment, how, lambda: condition is None or condition(place)):
            end(job, 60)
            job.left()
            return None
        struck = time.monotonic()
        phase = phase_of(place)
        ended = end(job, LIMIT + MORE + 20)
        took = time.monotonic() - struck
        left = job.left()
        if how == signal.SIGSTOP and phase == "after a line of end" and left == [rank]:
            return None  # nobody waited for it any more
        said = job.said()
        times.setdefault(kind, []).append(took)
        # The others may have trained to the end without the process.
        finished = bool(launching) and ("end", "") in events_of(place)
        failed = job.launcher.returncode != 0 or bool(launching)  # mpirun that recovers may return 0
        named = is_named(said, rank, phase == "joining", how == signal.SIGKILL and not launching) or finished
        name = "%s to process %d of %d after %.2f s, %s" % (kind, rank, processes, struck - job.began, phase)
        tap.ok(ended and took <= LIMIT + MORE and not left and failed and named,
               "%s: all end in %.1f s%s%s" % (name, took, "" if named else "; it is not named",
                                              "; processes %s still run" % left if left else ""))
        if not named or not failed or took > LIMIT + MORE:
            print("# " + "\n# ".join(said.splitlines()[-12:]))
        files = [whole(path) for path in glob.glob(os.path.join(place, "run", "*.safetensors"))]
        tap.ok(all(isinstance(step, int) for step in files), "checkpoints that are left are complete: %s" % files)
        other = draw.choice([n for n in range(1, 5) if n != processes])
        again = Job(program, place, other, "--resume")
        good = end(again, 60) and again.launcher.returncode == 0
        reached = good and digest(place) == expected
        tap.ok(reached, "%d processes resume and reach the same weights" % other)
        if not reached:
            print("# " + "\n# ".join(again.said().splitlines()[-12:]))
    return True


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    draw = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    program = os.path.join(SOURCE, "build", "mirrortrain")
    if not shutil.which("mpirun") or b"Open MPI" not in subprocess.run(["mpirun", "--version"],
                                                                       stdout=subprocess.PIPE).stdout:
        tap.skip("no mpirun of Open MPI: apt-get install openmpi-bin libopenmpi-dev")
        return tap.done()
    seconds, digests, times = {}, set(), {}
    for processes in range(2, 5):
        with tempfile.TemporaryDirectory() as place:
            job = Job(program, place, processes)
            ended = end(job, 120)
            seconds[processes] = time.monotonic() - job.began
            if not tap.ok(ended and job.launcher.returncode == 0, "%d processes train" % processes):
                print("# " + "\n# ".join(job.said().splitlines()[-12:]))
                return tap.done()
            digests.add(digest(place))
    if tap.ok(len(digests) == 1, "2 to 4 processes reach the same weights in %s s"
              % ", ".join("%.1f" % s for s in seconds.values())):
        done = 0
        while done < number:
            done += one(program, draw, seconds, next(iter(digests)), times) is not None
    for kind, took in sorted(times.items()):
        print("# %s: all end in %.1f s (median), %.1f s at most, of %d" % (kind, statistics.median(took), max(took),
                                                                         len(took)))
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
