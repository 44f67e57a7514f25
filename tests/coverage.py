#!/usr/bin/env python3
"""Line and branch coverage of src/ by the whole test suite, with gcc and gcov.

    tests/coverage.py BUILD_DIR TEST...

Builds each test with --coverage and without optimization, runs it, and adds up what gcov says of
mirrortrain.h over all of them, brought back to the files of src/. Nothing is left out: text that is
compiled for several instruction sets counts once for each of them, as far as the machine has them.
Prints a table; what no test reached is in BUILD_DIR/<file>.txt. The last line is the total.
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CC = os.environ.get("COVERAGE_CC", "gcc")
GCOV = os.environ.get("GCOV", "gcov")
# Threads count at the same time, so counters are atomic.
FLAGS = ["-std=c11", "-O0", "-ffp-contract=off", "--coverage", "-fprofile-update=atomic"]
TIME_LIMIT = 600


def source_lines(path):
    """(file, line number, text) of src/`path` as tools/amalgamate.c lays it out."""
    after_blank = True
    with open(os.path.join(ROOT, "src", path)) as file:
        for number, text in enumerate(file.read().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s*"([^"]*)"', text)
            if include:
                target = os.path.normpath(os.path.join(os.path.dirname(path), include.group(1)))
                if target.endswith(".inc"):
                    yield from source_lines(target)
                    after_blank = False
                continue
            blank = not text.strip()
            if not (blank and after_blank):
                yield path, number, text
            after_blank = blank


def map_header(header):
    """Header line number -> (file, line number, text), from the section marks in it."""
    places = {}
    number = 0
    while number < len(header):
        mark = re.match(r"/\* >>section (.*) \*/$", header[number])
        number += 1
        if not mark:
            continue
        number += 1  # the empty line after the mark
        for path, line, text in source_lines(mark.group(1)):
            if header[number] != text:
                sys.exit("mirrortrain.h:%d is not src/%s:%d: run `make header`" % (number + 1, path, line))
            places[number + 1] = (path, line, text)
            number += 1
    return places


def make_tree(tree):
    """A copy of what is compiled. Neither optimized nor inlined, every function counts as it is written."""
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("tests", "cli"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(tree, folder))
    shutil.copy(os.path.join(ROOT, "mirrortrain.c"), tree)
    with open(os.path.join(ROOT, "mirrortrain.h")) as file:
        text = file.read()
    with open(os.path.join(tree, "mirrortrain.h"), "w") as file:
        file.write(re.sub(r"(?m)^#pragma GCC optimize.*$| __attribute__\(\(always_inline\)\)", "", text))
    return text.splitlines()


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def build_and_run(build, tree, name):
    """Builds and runs one test; returns (name, what went wrong or "")."""
    place = os.path.join(build, "run", name)
    os.makedirs(place)
    program = os.path.join(place, name)
    environment = dict(os.environ)
    if name.endswith(".sh"):  # a test of the command-line program
        program = os.path.join(place, "mirrortrain")
        sources = [os.path.join(tree, "cli", f) for f in sorted(os.listdir(os.path.join(tree, "cli"))) if f.endswith(".c")]
        sources.append(os.path.join(tree, "mirrortrain.c"))
        environment["MIRRORTRAIN"] = program
        command = [os.path.join(ROOT, "tests", name)]
    else:
        sources = [os.path.join(tree, "tests", name + ".c")]
        command = [program]
    built = run([CC] + FLAGS + ["-w"] + sources + ["-o", program, "-lm", "-lpthread"], cwd=place)
    if built.returncode != 0:
        return name, "does not compile:\n" + built.stdout
    try:
        ran = run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return name, "ran longer than %d s" % TIME_LIMIT
    if ran.returncode != 0:
        wrong = [line for line in ran.stdout.splitlines() if not re.match(r"ok |1\.\.", line)]
        return name, "\n".join(["exit status %d" % ran.returncode] + wrong[-20:])
    return name, ""


def add_counts(place, header, lines, branches):
    """Adds what gcov says of one program. lines: number -> count. branches: (number, function) ->
    {branches there: [programs, count of each]}: macros may give a line other branches in some tests."""
    for data in sorted(f for f in os.listdir(place) if f.endswith(".gcda")):
        said = run([GCOV, "--json-format", "--branch-probabilities", "--stdout", data], cwd=place)
        for text in said.stdout.splitlines():
            if not text.startswith("{"):
                continue
            for file in json.loads(text)["files"]:
                if os.path.normpath(os.path.join(place, file["file"])) != header:
                    continue
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[number] = lines.get(number, 0) + line["count"]
                    counts = [b["count"] for b in line["branches"] if not b["throw"]]
                    if not counts:
                        continue
                    variants = branches.setdefault((number, line.get("function_name", "")), {})
                    variant = variants.setdefault(len(counts), [0, [0] * len(counts)])
                    variant[0] += 1
                    variant[1] = [a + b for a, b in zip(variant[1], counts)]


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def report(build, places, lines, branches):
    files = {}
    for number, count in lines.items():
        if number in places:
            path, line, text = places[number]
            entry = files.setdefault(path, {"lines": {}, "branches": [0, 0], "missed": []})
            entry["lines"][number] = entry["lines"].get(number, 0) + count
    for (number, function), variants in sorted(branches.items()):
        if number not in places:
            continue
        path, line, text = places[number]
        # The form most programs have, which is that of the library as it is.
        counts = max(variants.values(), key=lambda v: (v[0], len(v[1])))[1]
        entry = files[path]
        entry["branches"][0] += sum(c > 0 for c in counts)
        entry["branches"][1] += len(counts)
        if 0 in counts:
            never = ",".join(str(i) for i, c in enumerate(counts) if c == 0)
            what = "line never ran" if not any(counts) else "branches %s of %d not taken" % (never, len(counts))
            entry["missed"].append("%s:%d: %s: %s: %s" % (path, line, function, what, text.strip()))
    print("%-32s %17s %19s" % ("", "lines", "branches"))
    sums = [0, 0, 0, 0]
    for path in sorted(files):
        entry = files[path]
        row = [sum(c > 0 for c in entry["lines"].values()), len(entry["lines"])] + entry["branches"]
        sums = [a + b for a, b in zip(sums, row)]
        print("%-32s %5.1f %% %4d/%-4d %6.1f %% %4d/%-4d" %
              (path, percent(row[0], row[1]), row[0], row[1], percent(row[2], row[3]), row[2], row[3]))
        missed = ["%s:%d: line never ran: %s" % (path, places[n][1], places[n][2].strip())
                  for n, c in sorted(entry["lines"].items()) if c == 0] + entry["missed"]
        with open(os.path.join(build, path.replace("/", "_") + ".txt"), "w") as out:
            out.write("".join(text + "\n" for text in missed))
    print("line coverage of src/: %.1f %% (%d of %d)" % (percent(sums[0], sums[1]), sums[0], sums[1]))
    print("branch coverage of src/: %.1f %% (%d of %d)" % (percent(sums[2], sums[3]), sums[2], sums[3]))


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: tests/coverage.py BUILD_DIR TEST...")
    build = os.path.abspath(sys.argv[1])
    tree = os.path.join(build, "tree")
    shutil.rmtree(build, ignore_errors=True)
    places = map_header(make_tree(tree))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for name, wrong in pool.map(lambda name: build_and_run(build, tree, name), sys.argv[2:]):
            if wrong:
                failed += 1
                print("%s: %s" % (name, wrong))
    lines, branches = {}, {}
    for name in sys.argv[2:]:
        add_counts(os.path.join(build, "run", name), os.path.join(tree, "mirrortrain.h"), lines, branches)
    report(build, places, lines, branches)
    if failed:
        sys.exit("%d tests failed: the figures are too low" % failed)


if __name__ == "__main__":
    main()
