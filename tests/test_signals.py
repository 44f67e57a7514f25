#!/usr/bin/env python3
"""Tests Ctrl-C, SIGTERM and SIGHUP in a fit. Its step ends, checkpoint and report are written, and the printed command
resumes it bit-identically."""

import html
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap

PROGRAM = os.path.abspath(
    os.environ.get("MIRRORTRAIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/mirrortrain"))
)
FIT = ["fit", "--threads", "1", "--batch", "500", "--epochs", "3", "--log-steps"]


def defaults():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def start(args, before=defaults):
    # stdbuf is not everywhere: a pseudo-terminal makes stdout line-buffered.
    master, slave = os.openpty()
    process = subprocess.Popen(
        [PROGRAM] + args, stdout=slave, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=before
    )
    os.close(slave)
    return process, os.fdopen(master, "rb", buffering=0)


def lines_of(stream):
    data = b""
    while True:
        try:
            more = stream.read(4096)
        except OSError:  # the other end is closed
            more = b""
        if not more:
            return
        data += more
        while b"\n" in data:
            line, data = data.split(b"\n", 1)
            yield line.decode().strip()


def interrupted(args, number, at, before=defaults):
    """Sends a signal when step `at` is printed: status, last step, stdout, stderr."""
    process, out = start(args, before)
    last, text = 0, []
    for line in lines_of(out):
        text.append(line)
        if line.startswith("step "):
            last = int(line.split()[1])
            if last == at:
                process.send_signal(number)
    err = process.stderr.read().decode()
    return process.wait(), last, text, err


def read(path):
    with open(path, "rb") as f:
        return f.read()


def newest(directory):
    return max(int(name[5:13]) for name in os.listdir(directory) if name.startswith("ckpt_"))


def check_resumed(home, number, status):
    odd = "\x07" if number == signal.SIGTERM else ""  # which a line does not show as it is
    directory = os.path.join(home, "a run's $HOME; \"%s\"%s" % (signal.Signals(number).name, odd))
    args = FIT + ["--run", directory, "--checkpoint-every", "1000", "--report"]
    got, last, _, err = interrupted(args + ["--save", home + "/end.safetensors"], number, 13)
    tap.ok(
        got == status
        and newest(directory) == last
        and 13 <= last < 72
        and not os.path.exists(home + "/end.safetensors"),
        "%s at step 13: status %d, a checkpoint of its last step, %d" % (signal.Signals(number).name, got, last),
    )
    with open(directory + "/log.jsonl") as f:
        events = [json.loads(line) for line in f]
    page = read(directory + "/report.html").decode()
    command = next(
        (line[len("resume with: ") :] for line in err.split("\n") if line.startswith("resume with: ")), "false"
    )
    tap.ok(
        events[-1]["event"] == "interrupted"
        and events[-1]["resume"] == command
        and ">interrupted<" in page
        and command + "</code>" in html.unescape(page),
        "log and report: " + command,
    )
    tap.ok(
        not [name for name in os.listdir(directory) if name == ".lock" or name.endswith(".tmp")], "nothing else is left"
    )
    again = subprocess.run(
        ["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    same = again.returncode == 0 and read(home + "/end.safetensors") == read(home + "/whole.safetensors")
    tap.ok(
        same,
        "the resumed run is bit-identical to one without interruption: "
        + again.stderr.decode()[-200:].replace("\n", " | "),
    )
    with open(directory + "/log.jsonl") as f:
        tap.ok(
            '"interrupted"' not in f.read() and ">finished<" in read(directory + "/report.html").decode(),
            "whose log and report know of no interruption",
        )
    os.remove(home + "/end.safetensors")
    shutil.rmtree(directory)


def check_kept(home):
    got, last, text, err = interrupted(FIT, signal.SIGINT, 5)
    tap.ok(
        got == 130 and "nothing was saved" in err and "resume with" not in err,
        "without --run: status %d, %s" % (got, err.strip().split("\n")[-1]),
    )
    path = home + "/part.safetensors"
    got, last, text, err = interrupted(FIT + ["--save", path], signal.SIGTERM, 5)
    tap.ok(
        got == 143 and os.path.exists(path) and "saved: " + path in text,
        "with --save alone the weights of the last step are written",
    )
    got, last, text, err = interrupted(
        FIT, signal.SIGHUP, 5, lambda: (defaults(), signal.signal(signal.SIGHUP, signal.SIG_IGN))
    )
    tap.ok(
        got == 0 and last == 72,
        "a signal that was ignored at the start stays ignored, as under nohup: status %d, step %d" % (got, last),
    )


def check_second(home):
    """A pipe that is full holds the program at the latest when it ends, so the second signal meets it alive."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write_end, True)
    process = subprocess.Popen(
        [PROGRAM] + FIT, stdout=write_end, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, preexec_fn=defaults
    )
    os.close(write_end)
    err = b""
    for words in (b"memory:", b"finishing the step"):  # the fit has begun; the first signal has been taken
        while words not in err:
            more = os.read(process.stderr.fileno(), 4096)
            if not more:
                break
            err += more
        process.send_signal(signal.SIGINT)
    tap.ok(
        process.wait() == -signal.SIGINT and b"finishing the step" in err,
        "a second Ctrl-C ends at once: status %d" % process.returncode,
    )
    os.close(read_end)


def check_reader(home):
    """Ctrl-C ends both sides of a pipe, and the reader may be the first."""
    directory, last = home + "/piped", 0
    process, out = start(FIT + ["--run", directory])
    for line in lines_of(out):
        if line.startswith("step 5 "):
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            process.stderr.close()
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGCONT)
        last = int(line.split()[1]) if line.startswith("step ") else last
    got = process.wait()
    kept = os.path.isdir(directory) and any(name.startswith("ckpt_") for name in os.listdir(directory))
    found = newest(directory) if kept else 0
    tap.ok(got == 130 and found == last, "stderr without a reader: status %d, the checkpoint of step %d" % (got, found))


def main():
    with tempfile.TemporaryDirectory(prefix="mirt_signals.") as home:
        whole = subprocess.run(
            [PROGRAM] + FIT + ["--save", home + "/whole.safetensors"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        tap.ok(whole.returncode == 0, "a run without interruption")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            check_resumed(home, number, 128 + number)
        check_kept(home)
        check_second(home)
        check_reader(home)
    return tap.done()


sys.exit(main())
