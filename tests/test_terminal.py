#!/usr/bin/env python3
"""Names of classes, layers and files that are commands to a terminal or look like results: what the program prints obeys and forges nothing."""
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import model_file
import tap

PROGRAM = os.environ.get("MIRRORTRAIN") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain")
TITLE, FORGED, C1, DELETE, TURNED = "\x1b]0;owned\x07", "x\nevaluate: loss=0.000000 accuracy=1.000000", "\x9b2J", "a\x7f\x7f", "\u202e\u2067\u200f\u061cexe.txt"
NAMES = (TITLE, FORGED, C1, DELETE, TURNED, "\r\x1b[2Kverify: images=1 corrupt=0", "plain \u00e9 \u6f22 \U0001f431")


def run(*args):
    return subprocess.run([PROGRAM] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)


def check(what, made, status, lines=None, words=b""):
    good = made.returncode == status and tap.tame(made.stdout) and tap.tame(made.stderr) and (lines is None or made.stdout.count(b"\n") == lines) and words in made.stdout + made.stderr
    tap.ok(good, "%s: %s" % (what, ascii((made.stdout or made.stderr).decode(errors="replace").strip().split("\n")[-1][:150]) if good else (made.returncode, made.stdout, made.stderr[-400:])))


def check_models(home):
    image, model = home + "/image.bmp", home + "/model.safetensors"
    model_file.write_bitmap(image, 9, 9, 1)
    for i, name in enumerate(NAMES):
        scores = [0.0] * len(NAMES)
        scores[i] = 5.0
        model_file.flat_model(model, scores, classes=NAMES, loss="sparse_categorical_crossentropy")
        check("predict names class %d" % i, run("predict", "--load", model, image), 0, 1, b"\\x1b]0;owned\\x07" if name == TITLE else name.encode() if i == 6 else b"\\x")
    data = home + "/data"
    for name in ("a", "b"):
        model_file.write_bitmap("%s/%s/1.bmp" % (data, name), 9, 9, 1)
    check("evaluate, whose classes are not there", run("evaluate", "--load", model, "--data", data), 1, 0)
    for name in NAMES[:6]:
        names = ("net" + name, "flatten" + name.replace("/", ""), "dense" + name)
        model_file.flat_model(model, [0.1, 0.2], classes=("a", "b"), loss="sparse_categorical_crossentropy", names=names)
        check("layers named %s" % ascii(name), run("evaluate", "--load", model, "--data", data, "--confusion", home + "/matrix.png"), 0, 2)
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
        for args in (["predict", "--load", home + "/ok.safetensors", name], ["predict", "--load", name, photos + "/plain.bmp"], ["evaluate", "--load", name], ["fit", "--init", name, "--max-steps", "1"],
                     ["fit", "--data", name], ["fit", "--model", name], ["fit", "--run", photos + "/plain.bmp/" + name], ["fit", "--save", home + "/none/" + name], ["report", name], ["verify", name],
                     ["augment", name, "--out", home + "/s.png"], ["augment", "--out", home + "/none/" + name + ".png"], ["graph", "--svg", home + "/none/" + name], ["doctor", name], [name],
                     ["fit", "--" + name], ["fit", "--lr", name], ["fit", "--devices", name], ["summary", "--model", name], ["bench", "--optimizer", name], ["fit", "--metrics", name], ["devices", name]):
            made = run(*args)
            if not (made.returncode in (1, 2) and tap.tame(made.stdout + made.stderr)):
                tap.ok(False, "%s: %s" % (args, made))
        tap.ok(True, "22 command lines with %s" % ascii(name))


def check_damaged(home):
    """What is wrong with a file is said in words that the file cannot choose."""
    for i, text in enumerate((b'{"\x1b]0;owned\x07":', b'{"a":{"dtype":"\\u001b[2J","shape":[1],"data_offsets":[0,4]}}', b'{"\\u009b2J":{"dtype":"F32","shape":[1],"data_offsets":[0,9]}}', b'{"\xff":1}',
                              b'{"__metadata__":{"architecture":"{\\"name\\":\\"\\\\u001b[31m\\",\\"layers\\":[{\\"class_name\\":\\"\\\\u001b[2J\\",\\"name\\":\\"\\\\u007f\\"}]}","compile":"{}","training":"{}"}}')):
        path = home + "/damaged%d.safetensors" % i
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + b"\0\0\0\0")
        check("a damaged model", run("predict", "--load", path, home + "/image.bmp"), 1, 0)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0) + b"\0\0\0\0" + struct.pack(">I", 4) + b"\x1b[2J" + b"aaaa\0\0\0\0" + b"I\x1bND\xff"
    os.makedirs(home + "/bad")
    with open(home + "/bad/1.png", "wb") as f:
        f.write(png)
    check("an image with such a chunk", run("verify", home + "/bad"), 1, 2)


def main():
    with tempfile.TemporaryDirectory(prefix="mirt_terminal.") as home:
        model_file.write_bitmap(home + "/probe.bmp", 8, 8, 0)
        model_file.flat_model(home + "/probe.safetensors", [0.0])
        if b"no decoder" in run("predict", "--load", home + "/probe.safetensors", home + "/probe.bmp").stderr:
            tap.skip("no decoder of images was compiled in")
        else:
            check_models(home)
            check_files(home)
            check_damaged(home)
    return tap.done()


sys.exit(main())
