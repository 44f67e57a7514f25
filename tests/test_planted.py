#!/usr/bin/env python3
"""Runs each command that writes in directories prepared by an attacker. They contain links at the names it
writes, things that are not files, and names that a terminal would obey. Only the command's own files may
change."""
import os
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_file
import report_log
import tap

PROGRAM = os.environ.get("MIRRORTRAIN") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain")
PROGRAM = os.path.abspath(PROGRAM)
FIT = ["fit", "--devices", "1", "--threads", "1", "--batch", "50", "--epochs", "1", "--max-steps", "3", "--log-steps"]
PRECIOUS = b"precious\n"


def run(args, cwd, plant=None, how="link"):
    """The command in a process that has planted `plant` before, where $$ is that process's number; TimeoutExpired after two minutes."""
    script = {"link": 'ln -s "$0" "%s"; ', "file": 'cp "$0" "%s"; '}[how] % plant if plant else ""
    return subprocess.run(["sh", "-c", script + 'exec "$@"', os.path.join(os.path.dirname(cwd), "victim"), PROGRAM] + args, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, timeout=120)


class Place:
    """A directory to work in, and beside it a file that must stay as it is."""

    def __init__(self, home, number=[0]):
        number[0] += 1
        self.home = os.path.join(home, "case%d" % number[0])
        self.work = os.path.join(self.home, "work")
        self.victim = os.path.join(self.home, "victim")
        os.makedirs(os.path.join(self.work, "run"))
        with open(self.victim, "wb") as f:
            f.write(PRECIOUS)
        os.chmod(self.victim, 0o640)
        report_log.write(os.path.join(self.work, "run/log.jsonl"), epochs=2)
        model_file.flat_model(os.path.join(self.work, "model.safetensors"), [0.3])
        os.makedirs(os.path.join(self.work, "photos/dogs"))
        os.makedirs(os.path.join(self.work, "photos/cats"))
        for i in range(12):
            model_file.write_bitmap(os.path.join(self.work, "photos/dogs/%d.bmp" % i), 9, 9, 1)

    def intact(self):
        with open(self.victim, "rb") as f:
            return f.read() == PRECIOUS and stat.S_IMODE(os.stat(self.victim).st_mode) == 0o640 and sorted(os.listdir(self.home)) == ["victim", "work"]


# What is written, and the names that it is written under, those of earlier versions too. The last word: does the command succeed?
CASES = (
    (["report", "run"], ("run/report.html", "run/report.html.$$.tmp", "run/report.html.$$-0.tmp"), True),
    (["doctor", "run"], ("run/.mirrortrain-doctor-$$", "run/.mirrortrain-doctor.$$-0.tmp"), True),
    (FIT + ["--save", "new.safetensors"], ("new.safetensors", "new.safetensors.tmp", "new.safetensors.$$-0.tmp"), True),
    (FIT + ["--trace", "trace.json"], ("trace.json", "trace.json.$$-0.tmp"), True),
    (FIT + ["--run", "fresh/run"], ("fresh/run/.probe-$$", "fresh/run/.probe.$$-0.tmp", "fresh/run/ckpt_00000003.safetensors", "fresh/run/ckpt_00000003.safetensors.$$-0.tmp"), True),
    (FIT + ["--run", "fresh/run"], ("fresh/run/log.jsonl", "fresh/run/.lock"), False),
    (FIT + ["--run", "fresh/run", "--report"], ("fresh/run/.sample.png", "fresh/run/.sample.png.$$-0.tmp", "fresh/run/report.html", "fresh/run/report.html.$$.tmp"), True),
    (["graph", "--svg", "graph.svg"], ("graph.svg", "graph.svg.$$.tmp", "graph.svg.$$-0.tmp"), True),
    (["augment", "photos", "--size", "16", "--out", "sheet.png"], ("sheet.png", "sheet.png.$$-0.tmp"), True),
    (["evaluate", "--load", "model.safetensors", "--data", "photos", "--confusion", "matrix.png"], ("matrix.png", "matrix.png.$$-0.tmp"), True),
)


def check_links(home):
    for args, names, succeeds in CASES:
        for name in names:
            place = Place(home)
            os.makedirs(os.path.join(place.work, "fresh/run"))
            made = run(args, place.work, name)
            if b"no decoder" in made.stderr:
                tap.skip("compiled without an image decoder")
                continue
            good = place.intact() and (made.returncode == 0) == succeeds
            tap.ok(good, "%s, a link at %s: %s%s" % (args[0], name, "the file it points to stays" if place.intact() else "THE FILE IT POINTS TO IS CHANGED",
                                                    "" if good or not place.intact() else ", but status %d: %s" % (made.returncode, made.stderr.decode()[-300:])))
    for args, name in ((FIT + ["--save", "new.safetensors"], "new.safetensors.tmp"), (FIT + ["--run", "fresh/run", "--report"], "fresh/run/.sample.png"), (FIT + ["--run", "fresh/run"], "fresh/run/.probe")):
        place = Place(home)
        os.makedirs(os.path.join(place.work, "fresh/run"))
        made = run(args, place.work, name, "file")
        path = os.path.join(place.work, name)
        tap.ok(made.returncode == 0 and os.path.exists(path) and open(path, "rb").read() == PRECIOUS, "%s leaves a file named %s as it is" % (args[0], name))
    place = Place(home)
    made = run(FIT + ["--save", "new.safetensors", "--run", "fresh/run", "--report"], place.work)
    left = [name for root, _, files in os.walk(place.work) for name in files if ".tmp" in name or name.startswith(".")]
    tap.ok(made.returncode == 0 and not left, "no temporary file is left behind: %s" % (left or made.stderr.decode()[-100:] if left or made.returncode else "none"))


def check_kinds(home):
    """Where the command writes there is something that is no file: it says so, in time, and nothing is harmed."""
    for kind in ("pipe", "directory", "circle", "dangling link"):
        for args, name in ((["report", "run"], "run/report.html"), (FIT + ["--save", "new.safetensors"], "new.safetensors"), (FIT + ["--trace", "trace.json"], "trace.json"),
                           (FIT + ["--run", "fresh/run"], "fresh/run/log.jsonl"), (FIT + ["--run", "fresh/run"], "fresh/run/.lock"), (FIT + ["--run", "fresh/run"], "fresh/run"),
                           (["graph", "--svg", "graph.svg"], "graph.svg"), (["augment", "photos", "--size", "16", "--out", "sheet.png"], "sheet.png"), (["doctor", "there"], "there"),
                           (["evaluate", "--load", "model.safetensors", "--data", "photos", "--confusion", "matrix.png"], "matrix.png")):
            place = Place(home)
            path = os.path.join(place.work, name)
            if kind == "directory" and name in ("fresh/run", "there"):
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if kind == "pipe":
                os.mkfifo(path)
            elif kind == "directory":
                os.mkdir(path)
            else:
                os.symlink(path if kind == "circle" else os.path.join(place.home, "nothing"), path)
            try:
                made = run(args, place.work)
            except subprocess.TimeoutExpired:
                tap.ok(False, "%s, a %s at %s: the program hangs" % (args[0], kind, name))
                continue
            if b"no decoder" in made.stderr:
                tap.skip("compiled without an image decoder")
                continue
            # A link that a whole file replaces may point anywhere.
            replaced = kind in ("circle", "dangling link") and name not in ("fresh/run/log.jsonl", "fresh/run/.lock", "fresh/run", "there")
            good = place.intact() and (made.returncode == 0 if replaced else made.returncode == 1 and (os.path.basename(name).encode() in made.stderr or b"FAILED" in made.stdout))
            tap.ok(good, "%s, a %s at %s: %s" % (args[0], kind, name, "replaced" if replaced and good else (made.stderr or made.stdout).decode(errors="replace").strip().split("\n")[-1][:200]))


def check_names(home):
    """Directories and files whose names are commands to a terminal, forged lines, bytes that are no UTF-8, or too long."""
    for name in (b"\x1b]0;owned\x07", b"a\r\nfinal: loss=0.000000 accuracy=1.000000", b"\xff\xfe", b"\xc2\x9b31m", b"--help", b"%s%n%x", b"'\"`$(id)", b"x" * 255, b"d" * 200 + b"/" + b"e" * 200):
        place = Place(home)
        target = os.path.join(place.work.encode(), name)
        os.makedirs(target, exist_ok=True)
        if b"x" * 255 not in name:
            os.rename(os.path.join(place.work, "run/log.jsonl").encode(), target + b"/log.jsonl")
            made = run([b"report", b"./" + name], place.work)
            tap.ok(made.returncode == 0 and tap.tame(made.stdout + made.stderr) and made.stdout.count(b"\n") == 1, "report in %r" % name[:40])
        made = run(FIT + ["--run", b"./" + name, "--tensorboard", "--report", "--save", b"./" + name + b"/m.safetensors", "--trace", b"./" + name + b"/t.json"], place.work)
        results = [line for line in made.stdout.split(b"\n") if line.startswith(b"final: ")]
        # Checkpoints keep names of files, as UTF-8, one per line.
        good = made.returncode == 0 and len(results) == 1 if name not in (b"\xff\xfe", b"a\r\nfinal: loss=0.000000 accuracy=1.000000") else made.returncode == 1 and not results
        tap.ok(good and tap.tame(made.stdout + made.stderr), "fit in %r: status %d %s" % (name[:40], made.returncode, b"" if made.returncode == 0 else made.stderr.strip().split(b"\n")[-1]))
        made = run([b"doctor", b"./" + name], place.work)
        tap.ok(made.returncode == 0 and tap.tame(made.stdout + made.stderr), "doctor in %r" % name[:40])
        made = run([b"graph", b"--svg", b"./" + name + b"/g.svg"], place.work)
        tap.ok(made.returncode == 0 and tap.tame(made.stdout + made.stderr) and made.stdout.count(b"\n") == 1, "graph in %r" % name[:40])
    for deep in (b"/".join([b"y" * 250] * 17), b"z" * 300):
        place = Place(home)
        for args in ([b"report", deep], [b"doctor", deep], FIT + ["--run", deep], FIT + ["--save", deep], [b"graph", b"--svg", deep], [b"augment", b"--size", b"16", b"--out", deep + b".png"]):
            made = run(args, place.work)
            tap.ok(made.returncode == 1 and place.intact() and tap.tame(made.stdout + made.stderr), "%s, a path of %d bytes: refused" % (args[0], len(deep)))


def main():
    with tempfile.TemporaryDirectory(prefix="mirt_planted.") as home:
        check_links(home)
        check_kinds(home)
        check_names(home)
    return tap.done()


sys.exit(main())
