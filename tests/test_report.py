#!/usr/bin/env python3
"""Tests `mirrortrain report` on all kinds of logs, with a parser and a browser. Without a browser (MIRT_BROWSER may
name one) that part is skipped."""
import base64
import glob
import hashlib
import html.parser
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser
import report_log
import tap

PROGRAM = os.path.abspath(
    os.environ.get("MIRRORTRAIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain"))
)
HOSTILE = "<script>alert('x')</script>\"'><img src=http://example.com/x onerror=alert(1)>&amp;\\"
VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(html.parser.HTMLParser):
    """What a page is made of, and what is wrong with it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.wrong, self.count, self.words, self.scripts, self.meta = [], [], {}, [], [], {}
        self.feed(text)
        self.close()
        if self.open:
            self.wrong.append("left open: %s" % self.open)

    def handle_starttag(self, tag, attrs):
        if not dict(attrs).get("aria-hidden"):  # keys of lines are no pictures
            self.count[tag] = self.count.get(tag, 0) + 1
        if tag == "meta" and dict(attrs).get("http-equiv"):
            self.meta[dict(attrs)["http-equiv"]] = dict(attrs)["content"]
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append("<%s> has an attribute twice" % tag)
        for name, value in attrs:
            if name.startswith("on") or (
                name in ("src", "href", "action", "xlink:href") and not (value or "").startswith("data:")
            ):
                self.wrong.append("<%s %s=%s>" % (tag, name, value))
            if (
                tag in ("path", "rect", "circle", "text", "svg")
                and re.search(r"\b(nan|inf)\b", value or "", re.I)
                and name != "aria-label"
            ):
                self.wrong.append("<%s %s=%s>" % (tag, name, value))
        if tag in ("iframe", "object", "embed", "base", "form"):
            self.wrong.append("<%s>" % tag)
        if tag == "img" and not dict(attrs).get("alt"):
            self.wrong.append("an image without words for it")
        if tag == "script" and attrs:
            self.wrong.append("<script %s>" % attrs)
        if tag == "svg" and not dict(attrs).get("aria-label") and dict(attrs).get("aria-hidden") != "true":
            self.wrong.append("a picture without words for it")
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append("</%s> closes nothing" % tag)

    def handle_data(self, data):
        (self.scripts if self.open and self.open[-1] == "script" else self.words).append(data)

    @property
    def refreshes(self):
        """Seconds after which the page is loaded again; None: never."""
        return float(self.meta["refresh"]) if "refresh" in self.meta else None

    def check_script(self):
        """The page has one script, which is the program's own: browsers run no other."""
        digest = base64.b64encode(hashlib.sha256("".join(self.scripts).encode()).digest()).decode()
        allowed = "script-src 'sha256-%s'" % digest
        return self.count.get("script") == 1 and allowed in self.meta.get("Content-Security-Policy", "") or allowed

    @property
    def text(self):
        return " ".join(self.words)


def damaged(path):
    """Half a line, a line that is none, bytes that are no UTF-8, values of the wrong kinds."""
    lines = list(report_log.lines(ended=False))
    with open(path, "wb") as f:
        for line in lines[:40]:
            f.write(json.dumps(line).encode() + b"\n")
        f.write(
            b"not json\n{\"event\":\"epoch\",\"epoch\":0,\"loss\":null,\"accuracy\":\"high\"}\n{\"event\":\"begin\",\"model\":\"\xff\xfe\x01\",\"time\":1e300,\"epochs\":-1}\n"
        )
        f.write(
            b"{\"event\":\"confusion\",\"classes\":3,\"matrix\":[[1,2],[3]]}\n{\"event\":\"samples\",\"items\":[{\"png\":\"\\\"><b>\",\"predicted\":0},"
            b" 7]}\n" + b"[" * 3000 + b"\n"
        )
        f.write(
            b"{\"event\":\"timing\",\"phases\":{\"a\":-1,\"b\":null},\"devices\":[{}]}\n\xed\xa0\x80\n{\"event\":\"epoch\",\"epoch\":1,\"lo"
        )


def hostile(path):
    """Names that are markup, endless, empty, turned around, alike, not valid UTF-8 or not text at all."""
    names = [
        HOSTILE,
        "x" * 5000,
        "",
        "\u202e\u2066\u200f\u061c\u2028txt.exe",
        "line\nbreak\ttab\0nothing\x1b[31m",
        "</title></style></script><svg onload=alert(1)>",
        "x" * 5000,
        "javascript:alert(1)",
        "\u00e9" * 2000,
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "a\u0301" * 800,
        "{{7*7}} ${x} `id` %s%n",
        "BROKEN",
        "LONE",
    ]
    with open(path, "wb") as f:
        for line in report_log.lines(names=names, model="BROKEN" + HOSTILE + "y" * 3000):
            if line["event"] == "begin":
                line["environment"].update(
                    {HOSTILE: HOSTILE, "kernels": "z" * 3000, "w" * 3000: ["LONE", {}], "processor": "\u202eBROKEN"}
                )
            if line["event"] == "epoch":
                line.update({HOSTILE: 0.5, "v" * 3000: line["epoch"], "val_" + HOSTILE: 0.25, "": 1})
                line["use"]["devices"][0].update(name=HOSTILE + "q" * 3000, busy=1e300, input=None, bytes="many")
                line["use"]["devices"][1] = [[1, None], "cpu"] if line["epoch"] % 2 else {}
            if line["event"] == "timing":
                line["phases"].update({HOSTILE: 1, "u" * 3000: 2})
                line["devices"][0]["name"], line["devices"][1]["name"], line["verdict"] = (
                    HOSTILE,
                    "t" * 3000,
                    HOSTILE + "s" * 3000,
                )
            if line["event"] == "end":
                line["status"], line["error"] = HOSTILE, "r" * 3000 + "BROKEN"
            f.write(
                json.dumps(line)
                .encode()
                .replace(b"BROKEN", b"\xff\xfe\xc3(\xed\xa0\x80\xf8<u>")
                .replace(b"LONE", b"\\ud800<i>\\udc00")
                + b"\n"
            )


def cases(home):
    """(name, directory) of logs."""
    photos = ["cats", "dogs", "a rather long name of a class that does not fit", "\u6f22\u5b57 \u2615", HOSTILE]
    kinds = {
        "a run": dict(),
        "one epoch": dict(epochs=1, per_epoch=3),
        "a long run": dict(epochs=150, per_epoch=4),
        "names": dict(names=photos, model=HOSTILE),
        "gpus": dict(gpus=4),
        "forty classes": dict(names=["class %d" % i for i in range(40)]),
        "no predictions, not ended": dict(predictions=False, timing=False, ended=False),
    }
    for name, how in kinds.items():
        directory = os.path.join(home, name)
        os.mkdir(directory)
        report_log.write(directory + "/log.jsonl", **how)
        yield name, directory
    for name, write in (("damaged", damaged), ("hostile", hostile)):
        directory = os.path.join(home, name)
        os.mkdir(directory)
        write(directory + "/log.jsonl")
        yield name, directory


def report(*args):
    return subprocess.run(
        [PROGRAM, "report"] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


def check_page(name, directory):
    made = report(directory)
    path = directory + "/report.html"
    good = made.returncode == 0 and made.stdout.decode() == "report: %s\n" % path
    tap.ok(good, "%s: %s" % (name, (made.stdout + made.stderr).decode().strip()))
    if not good:
        return
    with open(path, "rb") as f:
        text = f.read().decode("utf-8")  # an error if it is not
    page = Page(text)
    tap.ok(
        not page.wrong,
        "%s: a page without faults, of %d bytes%s"
        % (name, len(text), "" if not page.wrong else ": %s" % page.wrong[:4]),
    )
    tap.ok(page.check_script() is True and page.refreshes is None, "%s: one script: %s" % (name, page.check_script()))
    if name == "names":
        tap.ok(
            HOSTILE in page.text and "\u6f22\u5b57 \u2615" in page.text and "<script>alert" not in text,
            "names mean nothing but themselves",
        )
    if name == "a run":
        tap.ok(
            page.count.get("svg", 0) == 8 and page.count.get("table", 0) >= 5 and page.count.get("img") == 16,
            "curves, bar, matrix, tables, images",
        )
        tap.ok(
            "98.90" in page.text and "98.43" in page.text and "AMD EPYC" in page.text and "balanced: 75" in page.text,
            "with the numbers of the log",
        )
        tap.ok("6 of 6 epochs" in page.text and "taken up" not in page.text, "that has ended")
    if name == "hostile":
        tap.ok(
            HOSTILE in page.text
            and text.count("<script") == 1
            and "<svg onload" not in text
            and "<u>" not in text
            and "<i>" not in text,
            "names of all kinds mean nothing but themselves",
        )
        tap.ok(
            not any(c in text for c in tap.TURNS) and "y" * 200 not in text and "(no name)" in page.text,
            "nor do they turn what stands around them, or fill the page",
        )
    if name == "gpus":
        charts = re.findall("<h3>([^<]*)</h3>", text)
        tables = re.findall('aria-label="([^"]*) over epochs; the numbers are in the table below"', text)
        tap.ok("Loss" in tables and "Busy" not in tables, "charts whose numbers are in a table say so: %s" % tables)
        expected = ["Busy", "Waiting for input", "Memory in MiB", "Utilization, as the driver says", "Power in watts"]
        lines = re.findall('data-name="gpu:([0-9])" data-d="([^"]*)"', text)
        tap.ok(
            all(title in charts for title in expected)
            and len(lines) == 20
            and all(len(points.split()) == 12 for _, points in lines)
            and re.search("uneven: gpu:[0-2] was busy 9[0-9]\u00a0% of the time, gpu:3 5[0-9]\u00a0%", page.text),
            "devices over time, one line per device, and uneven use is pointed out: %s" % charts[3:],
        )
    if name == "damaged":
        tap.ok("4 lines of the log could not be read" in page.text, "lines that cannot be read are counted")
    if name.endswith("not ended"):
        tap.ok(
            "no final record" in page.text and "still training, or its process ended" in page.text,
            "a run without an end says so",
        )


def check_in_browser(shown, name, directory):
    url = "file://" + urllib.parse.quote(directory) + "/report.html"
    grounds = set()
    for width in (1280, 400):
        for dark in (False, True):
            complaints, asked = shown.open(url, width, dark)
            wide = shown.evaluate("document.documentElement.scrollWidth")
            grounds.add(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
            good = not complaints and not asked and wide <= width
            tap.ok(
                good,
                "%s at %d pixels, %s: %d wide, %s"
                % (name, width, "dark" if dark else "light", wide, (complaints + asked) or "nothing to complain of"),
            )
    tap.ok(len(grounds) == 2, "%s: light and dark differ" % name)


LATER = "Date.now = (now => () => now() + 181000)(Date.now)"


def check_live(shown, name, directory, killed):
    """The page of a fit that is under way, or was killed. The browser's clock tells them apart."""
    url = "file://" + urllib.parse.quote(directory) + "/report.html"
    for width in (1280, 400):
        for dark in (False, True):
            complaints, asked = shown.open(url, width, dark)
            words = [shown.evaluate("document.getElementById('%s').innerText" % part) for part in ("state", "live")]
            wide, seen = shown.evaluate(
                "[document.documentElement.scrollWidth, !document.getElementById('stale').hidden]"
            )
            tap.ok(
                not complaints
                and not asked
                and wide <= width
                and words[0] == ("stopped?" if killed else "running")
                and seen == killed
                and re.fullmatch("last update [0-9]+\u00a0(s|min) ago", words[1]),
                "%s at %d pixels, %s: %s, %s" % (name, width, "dark" if dark else "light", words, complaints + asked),
            )


def check_charts(shown, directory):
    """Hover and zoom, by mouse and by keys."""
    url = "file://" + urllib.parse.quote(directory) + "/report.html"
    shown.open(url, 1280)
    chart = "document.querySelectorAll('.chart')[0]"
    rectangle = "(r => [r.left, r.top, r.width, r.height])(%s.querySelector('svg').getBoundingClientRect())"
    box = shown.evaluate(rectangle % chart)

    def mouse(kind, x, buttons=0):
        button = "left" if kind != "mouseMoved" or buttons else "none"
        place = {"x": box[0] + box[2] * x / 400, "y": box[1] + box[3] / 2}
        shown.call(
            "Input.dispatchMouseEvent", dict(place, type=kind, buttons=buttons, button=button, clickCount=1)
        )

    def told():
        return shown.evaluate("%s.querySelector('.tip').innerText" % chart)

    def ticks():
        return shown.evaluate("[].map.call(%s.querySelectorAll('.axes text'), e => e.textContent).join(' ')" % chart)
    mouse("mouseMoved", 46 + 342 * 0.5)
    tap.ok(
        shown.evaluate("getComputedStyle(%s.querySelector('.tip')).display" % chart) != "none"
        and "epoch 3" in told() and "training 0.1197" in told() and "validation 0.1308" in told(),
        "hovering tells the values: %r" % told(),
    )
    before = ticks()
    mouse("mousePressed", 46 + 342 * 0.5, 1)
    mouse("mouseMoved", 46 + 342 * 0.9, 1)
    mouse("mouseReleased", 46 + 342 * 0.9)
    after = ticks()
    tap.ok(
        after != before and "3.5" in after.split() and "6" not in after.split(),
        "dragging zooms: %s, then %s" % (before, after),
    )
    wide = shown.evaluate("document.documentElement.scrollWidth")
    tap.ok(wide <= 1280, "and the page stays as wide as it was: %d" % wide)
    shown.evaluate("%s.querySelector('.reset').click()" % chart)
    tap.ok(ticks() == before, "a button shows all again: %s" % ticks())
    shown.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": "ArrowRight"})
    tap.ok("epoch 4\n" in told(), "an arrow key tells the values: %r" % told())
    shown.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": "+", "text": "+"})
    tap.ok(ticks() != before, "and + zooms: %s" % ticks())


def check_training(home, shown):
    """A page is there during training, says that it is, and is loaded again; after kill -9 it says that, too."""
    directory = os.path.join(home, "under way")
    path = directory + "/report.html"
    command = [PROGRAM, "fit", "--run", directory, "--batch", "100", "--epochs", "5000", "--devices", "2", "--report"]
    began = time.time()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    try:
        text = ""
        while "Validation loss</dt>" not in text and time.time() < began + 100 and process.poll() is None:
            time.sleep(0.1)
            if os.path.exists(path):
                with open(path) as f:
                    text = f.read()
        page = Page(text)
        tap.ok(
            not page.wrong
            and 10 <= (page.refreshes or 0) < 60
            and page.check_script() is True
            and "running" in page.text,
            "a page during training, after %.1f s: %s" % (time.time() - began, page.wrong[:3]),
        )
        tap.ok(
            re.search("in epoch [0-9]+ of 5000", page.text)
            and all(word in page.text for word in ("Images per second", "Time left", "Devices", "last update")),
            "with throughput, devices, time left and the last update",
        )
        if shown:
            check_live(shown, "during training", directory, False)
            shown.open("file://" + urllib.parse.quote(path), 1280)
            made = shown.evaluate("document.getElementById('live').dataset.at")
            until = time.time() + 40
            while shown.evaluate("document.getElementById('live').dataset.at") == made and time.time() < until:
                time.sleep(0.5)
            tap.ok(time.time() < until, "the browser loads the page again by itself")
    finally:
        process.kill()
        process.wait()
    with open(path) as f:
        tap.ok(Page(f.read()).refreshes is not None, "after kill -9 the page is the one from before")
    left = "%s.%d-1.tmp" % (path, process.pid)  # as a process leaves it that is killed while it writes
    open(left, "w").close()
    if shown:
        there = shown.call("Page.addScriptToEvaluateOnNewDocument", {"source": LATER})["identifier"]
        check_live(shown, "after kill -9", directory, True)
        shown.call("Page.removeScriptToEvaluateOnNewDocument", {"identifier": there})
    report(directory)
    with open(path) as f:
        page = Page(f.read())
    tap.ok(page.refreshes is None and "was killed" in page.text, "`report` then makes a page that stays")
    process = subprocess.Popen(
        command + ["--resume"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=100)[1].decode()
    with open(path) as f:
        page = Page(f.read())
    tap.ok(
        page.refreshes is None and "interrupted" in page.text and "id=\"live\"" not in page.text,
        "the last page of a fit is not loaded again: " + said.strip().split("\n")[-1][-90:],
    )
    tap.ok(not glob.glob(glob.escape(path) + ".*"), "the fit that resumes leaves no part of a page")


def fit(*args):
    return subprocess.run(
        [PROGRAM, "fit", "--log-steps"] + list(args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )


def check_fit(home):
    """A run of the program itself; its directory."""
    directory = os.path.join(home, "run of its own")
    how = ["--run", directory, "--batch", "500", "--epochs", "2", "--max-steps", "30"]
    made = fit(*how, "--report", "--tensorboard")
    said = made.stdout.decode().split("\n")
    tap.ok(
        made.returncode == 0 and said[-3] == "report: %s/report.html" % directory and said[-2].startswith("final: "),
        "fit --report: " + (said[-3] if made.returncode == 0 else made.stderr.decode()[-300:].replace("\n", " | ")),
    )
    tap.ok(
        sorted(os.listdir(directory + "/tensorboard"))[1:] == ["train", "validation"], "fit --tensorboard: event files"
    )
    with open(directory + "/report.html") as f:
        text = f.read()
    page = Page(text)
    tap.ok(
        not page.wrong and page.count.get("svg", 0) == 8 and page.count.get("img") == 24,
        "the page of a run: curves, time, matrix, images %s" % page.wrong[:3],
    )
    with open(directory + "/log.jsonl") as f:
        log = f.read()
    events = [json.loads(line)["event"] for line in log.strip().split("\n")]
    tap.ok(
        [e for e in events if e != "step"] == ["begin", "epoch", "epoch", "timing", "end", "confusion", "samples"]
        and '"status":"stopped"' in log
        and events.count("step") == 3,
        "its log: " + " ".join(events),
    )
    matrix = next(json.loads(line)["matrix"] for line in log.split("\n") if '"confusion"' in line)
    right, whole = sum(matrix[i][i] for i in range(10)), sum(map(sum, matrix))
    shown = json.loads(log.strip().split("\n")[-1])["items"]
    classes = {one["true"] for one in shown}
    tap.ok(len(classes) == 10, "images of %d classes are shown" % len(classes))
    tap.ok(whole == 2000 and len(shown) == 24, "%d of %d images are right" % (right, whole))
    again = fit(*how, "--resume")
    with open(directory + "/log.jsonl") as f:
        tap.ok(again.returncode == 0 and f.read() == log, "a run that has ended leaves its log as it is")
    more = fit(*how[:-1], "40", "--resume", "--report")
    with open(directory + "/log.jsonl") as f:
        events = [json.loads(line)["event"] for line in f]
    tap.ok(
        more.returncode == 0
        and [e for e in events if e != "step"]
        == ["begin", "epoch", "resume", "epoch", "timing", "end", "confusion", "samples"]
        and events.count("step") == 4,
        "one that resumes continues it: " + " ".join(events),
    )
    with open(directory + "/report.html") as f:
        text = Page(f.read()).text
    tap.ok(
        "resumed at step 30" in text and "This covers the 10 steps since the run was resumed" in text,
        "and the page says so",
    )
    tap.ok("in epoch 2 of 2" in text and "of 2 epochs" not in text, "and that its last epoch was cut short")
    for flag in ("--report", "--tensorboard"):
        refused = fit(flag, "--epochs", "1")
        tap.ok(
            refused.returncode == 2 and "--run DIR" in refused.stderr.decode(),
            "%s alone: %s" % (flag, refused.stderr.decode().strip()),
        )
    return directory


def bitmap(path, shade):
    with open(path, "wb") as f:
        f.write(
            b"BM"
            + struct.pack("<IHHIIIIHHIIIIII", 54 + 8 * 24, 0, 0, 54, 40, 8, 8, 1, 24, 0, 8 * 24, 0, 0, 0, 0)
            + bytes((shade + 7 * i) % 256 for i in range(8 * 24))
        )


def check_photos(home):
    """A run on directories of such names; its own, if there is a decoder."""
    photos, directory = os.path.join(home, "photos"), os.path.join(home, "run of <u>photos")
    names = [
        HOSTILE.replace("/", "|").encode(),
        b"x" * 250,
        "\u202etxt.exe".encode(),
        b"line\nbreak",
        b"\xff\xfe\xc3(<u>",
    ]
    for broken in (False, True):
        for i, name in enumerate(names[: 5 if broken else 4]):
            os.makedirs(os.path.join(photos.encode(), name), exist_ok=True)
            for k in range(4):
                bitmap(os.path.join(photos.encode(), name, b"%d.bmp" % k), 40 * i + k)
        made = fit(
            "--model",
            "mobilenet_v2",
            "--alpha",
            "0.35",
            "--size",
            "32",
            "--batch",
            "8",
            "--data",
            photos,
            "--validation-split",
            "0.4",
            "--epochs",
            "1",
            "--run",
            directory,
            "--report",
            "--overwrite",
        )
        if b"no decoder" in made.stderr:
            return tap.skip("compiled without an image decoder")
        good = made.returncode == 0
        with open(directory + "/report.html" if good else os.devnull, "rb") as f:
            text = f.read().decode("utf-8")
        page = Page(text)
        tap.ok(
            good
            and not page.wrong
            and "<u>" not in text
            and text.count("<script") == 1
            and (broken or HOSTILE[:18] in page.text),
            "classes whose directories have such names%s: %s"
            % (
                ", one of them not UTF-8" if broken else "",
                page.wrong or made.stderr.decode(errors="replace").strip().split("\n")[-1][-200:],
            ),
        )
    return directory


def check_states(home):
    """What has become of a run: the lock tells a running one from one that was killed."""
    import fcntl
    directory = os.path.join(home, "states")
    os.mkdir(directory)

    def words(expected, what, unexpected="x y z"):
        made = report(directory)
        with open(directory + "/report.html") as f:
            page = Page(f.read())
        tap.ok(
            made.returncode == 0 and not page.wrong and expected in page.text and unexpected not in page.text,
            "%s: %s" % (what, expected),
        )

    report_log.write(directory + "/log.jsonl", ended=False)
    with open(directory + "/.lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        words("running", "a run whose lock is held", "without a final record")
    words("ended without a final record", "a run that was killed")
    end = {"event": "end", "status": "failed", "error": "the disk is full"}
    for line, expected in (
        ([end], "the disk is full"),
        ([dict(end, status="stopped")], "stopped"),
        (
            [dict(end, status="stopped"), {"event": "interrupted", "resume": "mirrortrain fit 'a <b>' --resume"}],
            "mirrortrain fit 'a <b>' --resume",
        ),
    ):
        report_log.write(directory + "/log.jsonl", ended=False)
        with open(directory + "/log.jsonl", "a") as f:
            f.write("".join(json.dumps(one) + "\n" for one in line))
        words(expected, line[-1].get("status", "interrupted"))


def check_best(home):
    """The best epoch follows what the log declares of a metric, whatever its name."""
    directory = os.path.join(home, "best")
    os.mkdir(directory)
    with open(directory + "/log.jsonl", "w") as f:
        f.write(
            json.dumps(
                {
                    "event": "begin",
                    "model": "best",
                    "epochs": 3,
                    "logs": {
                        "loss": {"direction": "min"},
                        "top5": {"direction": "max", "share": True},
                        "accuracy_lost": {"direction": "min"},
                        "error_found": {"direction": "max"},
                        "odd": {},
                    },
                }
            )
            + "\n"
        )
        for e, v in enumerate((0.25, 0.75, 0.5)):
            f.write(
                json.dumps(
                    {
                        "event": "epoch",
                        "epoch": e,
                        "loss": v,
                        "val_top5": v,
                        "top5": v,
                        "accuracy_lost": v,
                        "error_found": v,
                        "odd": v,
                    }
                )
                + "\n"
            )
    made = report(directory)
    with open(directory + "/report.html") as f:
        text = f.read()
    charts = {title: part for title, part in re.findall(r"<h3>([^<]*)</h3>(.*?)</figure>", text, re.S)}
    best = {title: re.findall(r"best[^0-9]*([0-9.]+)", part) for title, part in charts.items()}
    tap.ok(
        made.returncode == 0
        and best.get("Top5") == ["75.00"]
        and best.get("Accuracy lost") == ["0.25"]
        and best.get("Error found") == ["0.75"]
        and best.get("Odd") == [],
        "the best epoch by declared directions: %s" % best,
    )


def check_errors(home):
    for args, status, words in (
        (["/nowhere/run"], 1, "/nowhere/run/log.jsonl"),
        ([], 2, "report DIR"),
        ([home, home], 1, home + "/log.jsonl"),
        ([home] * 9, 2, "one to 8 runs"),
        (["--out", "x.html", home], 2, "--out"),
        ([home], 1, "log.jsonl"),
    ):
        made = report(*args)
        tap.ok(made.returncode == status and words in made.stderr.decode(), "refused: " + made.stderr.decode().strip())
    empty = os.path.join(home, "empty")
    os.mkdir(empty)
    open(empty + "/log.jsonl", "w").close()
    made = report(empty)
    tap.ok(
        made.returncode == 1 and "log.jsonl" in made.stderr.decode(), "an empty log: " + made.stderr.decode().strip()
    )
    report_log.write(empty + "/log.jsonl")
    os.mkdir(empty + "/report.html")
    made = report(empty)
    tap.ok(
        made.returncode == 1
        and "report.html: is not a regular file" in made.stderr.decode()
        and os.listdir(empty + "/report.html") == []
        and len(os.listdir(empty)) == 2,
        "a page that cannot be written: " + made.stderr.decode().strip(),
    )


def check_compare(home):
    """One page of several runs: what differs is marked, and each line looks different. Yields names and directories."""
    numbers = {"one": (1, 128, 5.0, 1000), "four": (4, 512, 1.25, 3900)}
    for name, (devices, batch, seconds, speed) in numbers.items():
        directory = os.path.join(home, "compared", name)
        os.makedirs(directory)
        with open(directory + "/log.jsonl", "w") as f:
            for line in report_log.lines():
                if line["event"] == "begin":
                    line.update(devices=devices, replicas=devices, batch=batch, seed=devices)
                    smoothing = {"label_smoothing": 0.1, "ignore_class": 3}
                    line["compile"] = {"loss_options": [smoothing if devices == 4 else {}]}
                if line["event"] == "epoch":
                    line["seconds"] = seconds if line["epoch"] else 99
                if line["event"] == "end":
                    line["images_per_second"] = speed
                f.write(json.dumps(line) + "\n")
    one, four = (os.path.join(home, "compared", name) for name in numbers)
    sets = {
        "compared": [one, four + "/"],
        "the same one twice": [one, one],
        "damaged ones": [os.path.join(home, name) for name in ("damaged", "hostile", "names", "one epoch")],
        "eight": [one, four] * 4,
    }
    for name, runs in sets.items():
        directory = os.path.join(home, "page of " + name)
        os.mkdir(directory)
        path = directory + "/report.html"
        made = report("--out", path, *runs)
        good = made.returncode == 0 and made.stdout.decode() == "report: %s\n" % path
        tap.ok(good, "%s: %s" % (name, (made.stdout + made.stderr).decode().strip()))
        if not good:
            continue
        with open(path) as f:
            text = f.read()
        page = Page(text)
        tap.ok(
            not page.wrong and page.check_script() is True and len(text) < 1 << 20,
            "%s: a page without faults: %s" % (name, page.wrong[:3]),
        )
        looks = set(re.findall(r'class="line (s[1-8])"', text))
        tap.ok(len(looks) == len(runs), "%s: a look for each run: %s" % (name, sorted(looks)))
        rows = {}
        for differs, cells in re.findall(r'<tr( class="differs")?>(<th scope="row">.*?)</tr>', text):
            cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", cells)]
            rows[cells[0].rstrip(" \u2260")] = (bool(differs), cells[1:])
        if name == "compared":
            expected = {
                "Model": (False, ["mnist", "mnist"]),
                "Devices": (True, ["1", "4"]),
                "Replicas": (True, ["1", "4"]),
                "Batch": (True, ["128", "512"]),
                "Epochs": (False, ["6", "6"]),
                "Time per epoch": (False, ["5\u00a0s", "1.25\u00a0s"]),
                "Images per second": (False, ["1000", "3900"]),
                "Speed-up": (False, ["1", "\u00d7\u00a03.90"]),
                "Best validation accuracy": (False, ["98.43\u00a0%"] * 2),
                "Final validation accuracy": (False, ["98.43\u00a0%"] * 2),
                "Seed": (True, ["1", "4"]),
                "Loss options": (True, ["\u2013", "label smoothing 0.1, ignore class 3"]),
            }
            wrong = {key: rows.get(key) for key in expected if rows.get(key) != expected[key]}
            tap.ok(not wrong and "Learning rate" not in rows, "settings and results: %s" % (wrong or "as in the logs"))
            tap.ok(text.count('<figure class="card chart">') == 6, "the curves of both in one chart each")
            tap.ok("table below" not in text, "no chart names a table that the page lacks")
        if name == "the same one twice":
            tap.ok(not any(differs for differs, _ in rows.values()), "nothing differs from itself")
        yield name, directory


def wide(directory, order, names):
    """The log of many epochs with thousands of metrics, in the order of the first epoch, in the reverse one or in
    another for each."""
    epochs = 400
    with open(os.path.join(directory, "log.jsonl"), "w") as f:
        f.write('{"event":"begin","model":"wide","epochs":%d}\n' % epochs)
        for e in range(epochs):
            keys = ["%s%s_metric_%d" % ("common_prefix_of_", "val" if i % 2 else "", i) for i in range(names)]
            if order == "reversed" and e % 2:
                keys.reverse()
            f.write(
                '{"event":"epoch",%s,"epoch":%d,"seconds":1}\n'
                % (",".join('"%s":%d.5' % (key, e % 7) for key in keys), e)
            )


def processor_seconds(directory):
    """Seconds of the processor that a report takes, the lesser of two, and what it said; the limit ends one that
    hangs."""
    least = float("inf")
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        made = subprocess.run(
            [PROGRAM, "report", directory],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (300, 300)),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if made.returncode != 0:
            break
    return least, made


def check_work(home):
    """Twice the names take twice the time of the processor, which other programs do not use up; for a quadratic report
    four times."""
    for order in ("sorted", "reversed"):
        seconds = []
        for names in (2000, 4000):
            directory = os.path.join(home, "%d wide, %s" % (names, order))
            os.mkdir(directory)
            wide(directory, order, names)
            took, made = processor_seconds(directory)
            seconds.append(took)
            size = os.path.getsize(directory + "/report.html") if made.returncode == 0 else -1
            tap.ok(
                0 < size < 5 << 20,
                "400 epochs of %d metrics, %s: status %d, a page of %d bytes %s"
                % (names, order, made.returncode, size, made.stderr.decode()[-200:]),
            )
            os.remove(directory + "/log.jsonl")
        tap.ok(
            seconds[1] < 3 * max(seconds[0], 0.05),
            "%s: %.2f s, and %.2f s for twice the metrics" % (order, seconds[0], seconds[1]),
        )
    long = os.path.join(home, "long")
    os.mkdir(long)
    with open(long + "/log.jsonl", "w") as f:
        f.write('{"event":"begin","model":"long","epochs":100000}\n')
        for e in range(100000):
            f.write('{"event":"epoch","epoch":%d,"loss":%g,"seconds":1}\n' % (e, 1 / (1 + e)))
    made = report(long)
    with open(long + "/report.html") as f:
        text = f.read()
    page = Page(text)
    tap.ok(
        made.returncode == 0 and not page.wrong and len(text) < 2 << 20 and '<th scope="row">100000</th>' in text,
        "100000 epochs: a page of %d bytes, with the last one" % len(text),
    )


def check_places(home):
    """A log that is no file must not hold the program, a page must not be written through a link."""
    for kind in ("pipe", "device", "directory", "circle"):
        directory = os.path.join(home, "log is a " + kind)
        os.mkdir(directory)
        path = directory + "/log.jsonl"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            os.mkdir(path)
        else:
            os.symlink("/dev/zero" if kind == "device" else path, path)
        try:
            made = subprocess.run(
                [PROGRAM, "report", directory],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                timeout=60,
            )
            tap.ok(
                made.returncode == 1 and os.listdir(directory) == ["log.jsonl"] and path in made.stderr.decode(),
                "a log that is a %s: %s" % (kind, made.stderr.decode().strip()),
            )
        except subprocess.TimeoutExpired:
            tap.ok(False, "a log that is a %s holds the program" % kind)


def main():
    with tempfile.TemporaryDirectory(prefix="mirt_report.") as home:
        pages = list(cases(home))
        for name, directory in pages:
            check_page(name, directory)
        check_errors(home)
        check_states(home)
        check_best(home)
        check_places(home)
        check_work(home)
        pages.append(("a run of its own", check_fit(home)))
        pages.extend(check_compare(home))
        photos = check_photos(home)
        if photos:
            pages.append(("photographs", photos))
        path = browser.find()
        shown = browser.Browser(path) if path else None
        check_training(home, shown)
        if shown:
            for name, directory in pages:
                check_in_browser(shown, name, directory)
            check_charts(shown, pages[0][1])
            shown.close()
        else:
            tap.skip("no browser: install chromium, or name one in MIRT_BROWSER")
    return tap.done()


sys.exit(main())
