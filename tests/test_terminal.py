#!/usr/bin/env python3
"""Tests the program's output to a terminal. Progress lines fit its width, and names of classes, layers and files cannot
act as control sequences or results."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_file
import tap

PROGRAM = os.environ.get("MIRRORTRAIN") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain"
)
TITLE, FORGED, C1, DELETE, TURNED = (
    "\x1b]0;owned\x07",
    "x\nevaluate: loss=0.000000 accuracy=1.000000",
    "\x9b2J",
    "a\x7f\x7f",
    "\u202e\u2067\u200f\u061cexe.txt",
)
NAMES = (TITLE, FORGED, C1, DELETE, TURNED, "\r\x1b[2Kverify: images=1 corrupt=0", "plain \u00e9 \u6f22 \U0001f431")


def run(*args):
    return subprocess.run(
        [PROGRAM] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


def check(what, made, status, lines=None, words=b""):
    good = (
        made.returncode == status
        and tap.tame(made.stdout)
        and tap.tame(made.stderr)
        and (lines is None or made.stdout.count(b"\n") == lines)
        and words in made.stdout + made.stderr
    )
    tap.ok(
        good,
        "%s: %s"
        % (
            what,
            (
                ascii((made.stdout or made.stderr).decode(errors="replace").strip().split("\n")[-1][:150])
                if good
                else (made.returncode, made.stdout, made.stderr[-400:])
            ),
        ),
    )


def check_models(home):
    image, model = home + "/image.bmp", home + "/model.safetensors"
    model_file.write_bitmap(image, 9, 9, 1)
    for i, name in enumerate(NAMES):
        scores = [0.0] * len(NAMES)
        scores[i] = 5.0
        model_file.flat_model(model, scores, classes=NAMES, loss="sparse_categorical_crossentropy")
        check(
            "predict names class %d" % i,
            run("predict", "--load", model, image),
            0,
            1,
            b"\\x1b]0;owned\\x07" if name == TITLE else name.encode() if i == 6 else b"\\x",
        )
    data = home + "/data"
    for name in ("a", "b"):
        model_file.write_bitmap("%s/%s/1.bmp" % (data, name), 9, 9, 1)
    check("evaluate, whose classes are not there", run("evaluate", "--load", model, "--data", data), 1, 0)
    for name in NAMES[:6]:
        names = ("net" + name, "flatten" + name.replace("/", ""), "dense" + name)
        model_file.flat_model(
            model, [0.1, 0.2], classes=("a", "b"), loss="sparse_categorical_crossentropy", names=names
        )
        check(
            "layers named %s" % ascii(name),
            run("evaluate", "--load", model, "--data", data, "--confusion", home + "/matrix.png"),
            0,
            2,
        )
        check("weights without them", run("fit", "--max-steps", "1", "--init", model), 1, 0)
        model_file.flat_model(model, [0.1, 0.2], classes=("a", "b"), activation=name)
        check("an activation of that name", run("predict", "--load", model, image), 1, 0)
        model_file.flat_model(model, [0.1, 0.2], classes=("a", "b"), loss=name)
        check("a loss", run("predict", "--load", model, image), 1, 0)


def check_files(home):
    photos = home + "/photos"
    for i, name in enumerate(n.encode() for n in NAMES[:6]):
        os.makedirs(os.path.join(photos.encode(), name.replace(b"/", b"|")))
        with open(os.path.join(photos.encode(), name, name + b".bmp"), "wb") as f:
            f.write(b"no image")
    os.makedirs(photos.encode() + b"/\xff\xfe\x80")
    model_file.write_bitmap(photos + "/plain.bmp", 9, 9, 1)
    check("verify", run("verify", photos), 1, 7, b"\\x1b]0;owned\\x07")
    net = ["--model", "mobilenet_v2", "--alpha", "0.35", "--size", "32", "--max-steps", "1"]
    check("fit on such directories", run("fit", "--data", photos, "--corrupt", "skip", *net), 0, 1)
    check("and where an image is damaged", run("fit", "--data", photos, *net), 1, 0, b"mirrortrain verify")
    model_file.flat_model(home + "/ok.safetensors", [0.1])
    for name in NAMES:
        for args in (
            ["predict", "--load", home + "/ok.safetensors", name],
            ["predict", "--load", name, photos + "/plain.bmp"],
            ["evaluate", "--load", name],
            ["fit", "--init", name, "--max-steps", "1"],
            ["fit", "--data", name],
            ["fit", "--model", name],
            ["fit", "--run", photos + "/plain.bmp/" + name],
            ["fit", "--save", home + "/none/" + name],
            ["report", name],
            ["verify", name],
            ["augment", name, "--out", home + "/s.png"],
            ["augment", "--out", home + "/none/" + name + ".png"],
            ["graph", "--svg", home + "/none/" + name],
            ["doctor", name],
            [name],
            ["fit", "--" + name],
            ["fit", "--lr", name],
            ["fit", "--devices", name],
            ["summary", "--model", name],
            ["bench", "--optimizer", name],
            ["fit", "--metrics", name],
            ["devices", name],
        ):
            made = run(*args)
            if not (made.returncode in (1, 2) and tap.tame(made.stdout + made.stderr)):
                tap.ok(False, "%s: %s" % (args, made))
        tap.ok(True, "22 command lines with %s" % ascii(name))


def check_damaged(home):
    """What is wrong with a file is said in words that the file cannot choose."""
    for i, text in enumerate(
        (
            b'{"\x1b]0;owned\x07":',
            b'{"a":{"dtype":"\\u001b[2J","shape":[1],"data_offsets":[0,4]}}',
            b'{"\\u009b2J":{"dtype":"F32","shape":[1],"data_offsets":[0,9]}}',
            b'{"\xff":1}',
            b'{"__metadata__":{"architecture":"{\\"name\\":\\"\\\\u001b[31m\\",\\"layers\\":[{\\"class_name\\":\\"\\\\u001b[2J\\",\\"name\\":\\"\\\\u007f\\"}]}","compile":"{}","training":"{}"}}',
        )
    ):
        path = home + "/damaged%d.safetensors" % i
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"\0\0\0\0")
        check("a damaged model", run("predict", "--load", path, home + "/image.bmp"), 1, 0)
    png = (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
        + b"\0\0\0\0"
        + struct.pack(">I", 4)
        + b"\x1b[2J"
        + b"aaaa\0\0\0\0"
        + b"I\x1bND\xff"
    )
    os.makedirs(home + "/bad")
    with open(home + "/bad/1.png", "wb") as f:
        f.write(png)
    check("an image with such a chunk", run("verify", home + "/bad"), 1, 2)


def written(columns, variables, *args):
    """What the program writes to a terminal of so many columns as its stderr, and its exit status."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [PROGRAM] + list(args),
        stdout=subprocess.DEVNULL,
        stderr=slave,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **variables},
    )
    os.close(slave)
    data = b""
    while True:
        try:
            more = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        data += more
    os.close(master)
    return data.decode(), process.wait()


def check_widths():
    """The progress line stays on one line of the terminal, whose width the terminal or COLUMNS says."""
    for columns, variables, width in (
        (40, {}, 40),
        (60, {}, 60),
        (80, {}, 80),
        (200, {}, 200),
        (0, {"COLUMNS": "50"}, 50),
        (0, {"COLUMNS": "wide"}, 80),
        (70, {"COLUMNS": "30"}, 70),
    ):
        text, status = written(columns, variables, "fit", "--epochs", "2", "--batch", "512", "--metrics", "top5,auc")
        lines = [line for part in text.split("\r\n") for line in part.split("\r") if "/24 " in line]
        longest = max(map(len, lines), default=0)
        last = lines[-1] if lines else ""
        good = (
            status == 0
            and len(lines) >= 2
            and longest < width
            and last.startswith("24/24 ")
            and all(name in last for name in ("- loss: ", "- val_loss: "))
        )
        every = width < 200 or all(
            " - %s: " % name in last
            for name in ("loss", "accuracy", "top5", "auc", "val_loss", "val_accuracy", "val_top5", "val_auc")
        )
        tap.ok(
            good and every,
            "%d columns%s: progress of at most %d: %s"
            % (columns, " and COLUMNS=%s" % variables["COLUMNS"] if variables else "", longest, last.rstrip()),
        )


def main():
    check_widths()
    with tempfile.TemporaryDirectory(prefix="mirt_terminal.") as home:
        model_file.write_bitmap(home + "/probe.bmp", 8, 8, 0)
        model_file.flat_model(home + "/probe.safetensors", [0.0])
        if b"no decoder" in run("predict", "--load", home + "/probe.safetensors", home + "/probe.bmp").stderr:
            tap.skip("compiled without an image decoder")
        else:
            check_models(home)
            check_files(home)
            check_damaged(home)
    return tap.done()


sys.exit(main())
