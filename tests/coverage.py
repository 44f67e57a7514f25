#!/usr/bin/env python3
"""Line and branch coverage of src/ by the whole test suite, with gcc and gcov.

    tests/coverage.py BUILD_DIR TEST...

Builds each test by the Makefile's rules for build/cover, in a copy of the tree and without optimization, runs it, and
adds up what gcov says of src/ over all of them; lines of mirrortrain.h, which some tests include as a whole, are
brought back to the files of src/. Text that is compiled for several instruction sets counts once for each of them that
the machine has; the last lines say how much the others would be.
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
GCOV = os.environ.get("GCOV", "gcov")
JOBS = os.environ.get("JOBS", "2")
# Threads count at the same time, so counters are atomic. A child process of a test writes its counts only in exit.
FLAGS = "-O0 -ffp-contract=off -w --coverage -fprofile-update=atomic -D_exit=exit -DUNCHECKED_FAMILIES"
TIME_LIMIT = 1200
# MIRT__OF (graph/graph.h) checks an op's family in tests' and debuggers' builds alone. What users compile does not, and
# the check never fails, so the form that users compile is the one to measure.
CHECKED_FAMILIES = "#if defined(MIRRORTRAIN_DEBUG) || defined(MIRRORTRAIN_SPLIT_BUILD)"
# Flags of the processor, and the functions that are not called without them.
INSTRUCTION_SETS = (
    ("avx2 fma", "_avx2$"),
    ("avx512f avx512bw avx512vl avx512dq", "_avx512$"),
    ("avx512_bf16", "_avx512bf16$|_peak_bf16$|^mirt__word_"),
)


def once():
    """The .inc files of which the header holds one copy, and which it includes itself for."""
    with open(os.path.join(ROOT, "src", "FILES")) as file:
        return re.findall(r"(?m)^@ONCE (.*)$", file.read())


def source_lines(path):
    """(file, line number, text) of src/`path` as tools/amalgamate.c lays it out; None where the header's copy of a text
    stands."""
    after_blank = True
    with open(os.path.join(ROOT, "src", path)) as file:
        lines = file.read().splitlines()
        names = [re.match(r'\s*#\s*include\s*"([^"]*)"', text) for text in lines]
        included = [name and os.path.normpath(os.path.join(os.path.dirname(path), name.group(1))) for name in names]
        for number, (text, target) in enumerate(zip(lines, included), 1):
            if target:
                if target in once():
                    yield path, number, "#define MIRT__ONLY_" + os.path.basename(target)[: -len(".inc")]
                    yield (path, number, '#include "mirrortrain.h"') if target in included[number:] else None
                    after_blank = False
                elif target.endswith(".inc"):
                    yield from source_lines(target)
                    after_blank = False
                continue
            blank = not text.strip()
            if not (blank and after_blank):
                yield path, number, text
            after_blank = blank


def unmarked(line):
    """The line without the mark of functions that some programs do not have."""
    return re.sub("^MIRT__(ABSENT|TOGETHER)_LIB", "MIRT__LIB", line)


def map_header(header):
    """Header line number -> (file, line number, text), from the section marks in it."""
    places = {}
    halves = {}  # section -> what follows the copy that stands in it
    number = 0
    while number < len(header):
        mark = re.match(r"/\* >>section (.*) \*/$", header[number])
        number += 1
        if not mark:
            continue
        number += 1  # the empty line after the mark
        lines = halves.get(mark.group(1)) or source_lines(mark.group(1))
        for place in lines:
            if not place:
                halves[mark.group(1) + ", resumed"] = lines
                break
            path, line, text = place
            if unmarked(header[number]) != unmarked(text):
                sys.exit("mirrortrain.h:%d is not src/%s:%d: run `make header`" % (number + 1, path, line))
            places[number + 1] = (path, line, text)
            number += 1
    return places


def make_tree(tree):
    """A copy of what is compiled. Neither optimized nor inlined, every function counts as it is written."""
    checked = 0
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("tests", "cli", "src"):
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(tree, folder))
    for file in ("Makefile", "mirrortrain.h", "mirrortrain.c"):
        shutil.copy(os.path.join(ROOT, file), tree)
    with open(os.path.join(ROOT, "mirrortrain.h")) as file:
        header = file.read().splitlines()
    sources = [os.path.join(folder, f) for folder, _, files in os.walk(os.path.join(tree, "src")) for f in files]
    for path in sources + [os.path.join(tree, "mirrortrain.h")]:
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:
            text = re.sub(
                r"(?m)^#pragma GCC optimize(?:.*\\\n)*.*$"
                r"|_Pragma\(\"GCC optimize.*\"\)"
                r"| __attribute__\(\(always_inline\)\)",
                lambda found: "\n" * found.group().count("\n"),  # lines keep their numbers
                text,
            )
            checked += text.count(CHECKED_FAMILIES)
            file.write(text.replace(CHECKED_FAMILIES, "#if 0"))
    if checked != 2:
        sys.exit("MIRT__OF is not where src/graph/graph.h and mirrortrain.h had it")
    return header


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


FUZZ = "model image resume cache csv gzip log tar".split()


def programs_of(name):
    """What make builds for a test; scripts run the command-line program, sim/NAME runs on simulated GPUs, and
    fuzz_seeds.sh replays the corpora of the fuzz targets."""
    if name.startswith("sim/"):
        return ["build/sim-cover/" + name[4:]]
    if name == "fuzz_seeds.sh":
        return ["build/cover/fuzz_" + target for target in FUZZ]
    return ["build/cover/" + ("mirrortrain" if name.endswith((".sh", ".py")) else name)]


def build(tree, names):
    """Returns what the compiler says; programs that it cannot make are absent afterwards."""
    programs = sorted({program for name in names for program in programs_of(name)})
    made = run(["make", "-k", "-j" + JOBS, "COVER_FLAGS=" + FLAGS] + programs, cwd=tree)
    return made.stdout if made.returncode else ""


def run_test(tree, name):
    """Returns (name, what went wrong or "")."""
    program = os.path.join(tree, programs_of(name)[0])
    environment = dict(os.environ, MIRRORTRAIN=program)
    if name == "fuzz_seeds.sh":
        environment["FUZZ_BUILD"] = os.path.relpath(os.path.dirname(program), os.path.join(ROOT, "build"))
    if name.startswith("sim/"):
        environment.update(MIRT_SIM_SEED="1", MIRT_SIM_DEVICES="4", MIRT_TEST_ALIGNED="1", MIRT_TEST_SMALL="1")
    if not os.path.exists(program):
        return name, "does not compile"
    command = [os.path.join(ROOT, "tests", name) if name.endswith((".sh", ".py")) else program]
    try:
        ran = run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return name, "ran longer than %d s" % TIME_LIMIT
    if ran.returncode != 0:
        wrong = [line for line in ran.stdout.splitlines() if not re.match(r"ok |1\.\.", line)]
        return name, "\n".join(["exit status %d" % ran.returncode] + wrong[-20:])
    return name, ""


def missing_functions():
    """A regular expression for functions of instruction sets that the machine lacks, and their names."""
    with open("/proc/cpuinfo") as file:
        flags = set(re.search(r"(?m)^(?:flags|Features)\s*:(.*)$", file.read()).group(1).split())
    missing = [(needs, names) for needs, names in INSTRUCTION_SETS if not flags.issuperset(needs.split())]
    return re.compile("|".join(names for _, names in missing) or "$^"), ", ".join(needs for needs, _ in missing)


class Counts:
    """What gcov says, by the files of src/. lines: (path, line, function) -> count. branches: (path, line, function) ->
    {branches there: [weight, count of each]}: macros give a line other branches in some tests of the whole header."""

    def __init__(self, tree, places):
        self.tree, self.places, self.lines, self.branches = tree, places, {}, {}

    def place(self, file, line):
        """(path below src/, line), or None for what is not part of the library."""
        if file == "mirrortrain.h":
            return self.places[line][:2] if line in self.places else None
        return (file[4:], line) if file.startswith("src/") else None

    def add(self, data):
        said = run([GCOV, "--json-format", "--branch-probabilities", "--stdout", data], cwd=os.path.dirname(data))
        for text in said.stdout.splitlines():
            if not text.startswith("{"):
                continue
            for file in json.loads(text)["files"]:
                name = os.path.relpath(os.path.normpath(os.path.join(self.tree, file["file"])), self.tree)
                # The library's own form of a line is the one in parts.a.
                weight = 1 if name == "mirrortrain.h" else 1000
                for line in file["lines"]:
                    place = self.place(name, line["line_number"])
                    if place:
                        self.add_line(place + (line.get("function_name", ""),), line, weight)

    def add_line(self, key, line, weight):
        self.lines[key] = self.lines.get(key, 0) + line["count"]
        counts = [b["count"] for b in line["branches"] if not b["throw"]]
        if not counts:
            return
        variant = self.branches.setdefault(key, {}).setdefault(len(counts), [0, [0] * len(counts)])
        variant[0] += weight
        variant[1] = [a + b for a, b in zip(variant[1], counts)]


def percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def report(folder, counts):
    files, text, absent = {}, {}, [0, 0]
    pattern, instruction_sets = missing_functions()
    for (path, line, function), count in sorted(counts.lines.items()):
        variants = counts.branches.get((path, line, function), {})
        taken = max(variants.values(), key=lambda v: (v[0], len(v[1])))[1] if variants else []
        if count == 0 and pattern.search(function):
            absent = [absent[0] + 1, absent[1] + len(taken)]
            continue
        entry = files.setdefault(path, {"lines": [0, 0], "branches": [0, 0], "missed": []})
        if path not in text:
            with open(os.path.join(ROOT, "src", path)) as file:
                text[path] = file.read().splitlines()
        where = "%s:%d: %s: %%s: %s" % (path, line, function, text[path][line - 1].strip().replace("%", "%%"))
        entry["lines"][0] += count > 0
        entry["lines"][1] += 1
        if count == 0:
            entry["missed"].append(where % "line never ran")
        entry["branches"][0] += sum(c > 0 for c in taken)
        entry["branches"][1] += len(taken)
        if 0 in taken and count > 0:
            never = ",".join(str(i) for i, c in enumerate(taken) if c == 0)
            entry["missed"].append(where % ("branches %s of %d not taken" % (never, len(taken))))
    print("%-32s %17s %19s" % ("", "lines", "branches"))
    sums = [0, 0, 0, 0]
    for path in sorted(files):
        entry = files[path]
        row = entry["lines"] + entry["branches"]
        sums = [a + b for a, b in zip(sums, row)]
        print("%-32s %5.1f %% %4d/%-4d %6.1f %% %4d/%-4d" %
              (path, percent(row[0], row[1]), row[0], row[1], percent(row[2], row[3]), row[2], row[3]))
        with open(os.path.join(folder, path.replace("/", "_") + ".txt"), "w") as out:
            out.write("".join(line + "\n" for line in entry["missed"]))
    if instruction_sets:
        print("not counted, as the machine lacks %s: %d lines, %d branches" % (instruction_sets, *absent))
    print("line coverage of src/: %.1f %% (%d of %d)" % (percent(sums[0], sums[1]), sums[0], sums[1]))
    print("branch coverage of src/: %.1f %% (%d of %d)" % (percent(sums[2], sums[3]), sums[2], sums[3]))


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: tests/coverage.py BUILD_DIR TEST...")
    folder, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    tree = os.path.join(folder, "tree")
    shutil.rmtree(folder, ignore_errors=True)
    counts = Counts(tree, map_header(make_tree(tree)))
    print(build(tree, names), end="")
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(JOBS)) as pool:
        for name, wrong in pool.map(lambda name: run_test(tree, name), names):
            if wrong:
                failed += 1
                print("%s: %s" % (name, wrong), flush=True)
    for place, _, files in os.walk(os.path.join(tree, "build/cover")):
        for file in sorted(files):
            if file.endswith(".gcda"):
                counts.add(os.path.join(place, file))
    report(folder, counts)
    if failed:
        sys.exit("%d tests failed: the figures are too low" % failed)


if __name__ == "__main__":
    main()
