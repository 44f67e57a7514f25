#!/usr/bin/env python3
"""Lines of src/cuda that tests on simulated devices reached, from gcov's counts beside BUILD_DIR/cuda.o.

    tests/sim/coverage.py BUILD_DIR [LEAST_PERCENT]

A line that is compiled several times, as templates are, was reached if one of them was. Prints a table; the lines that none
reached are in BUILD_DIR/<file>.txt. The last line is the total; the exit status is 1 where it is less than asked for (95).
"""
import gzip
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def counts(build):
    """file of src/cuda -> line -> how often."""
    reached = {}
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([os.environ.get("GCOV", "gcov"), "--json-format", "--object-directory", build, os.path.join(build, "cuda.o")],
                       cwd=place, check=True, stdout=subprocess.DEVNULL)
        for name in os.listdir(place):
            with gzip.open(os.path.join(place, name)) as file:
                for source in json.load(file)["files"]:
                    path = os.path.relpath(os.path.join(ROOT, "build", source["file"]), ROOT)
                    if not os.path.isabs(source["file"]) and not path.startswith("src/cuda"):
                        path = os.path.normpath(source["file"])
                    if "src/cuda/" not in path:
                        continue
                    lines = reached.setdefault(path[path.index("src/cuda/"):], {})
                    for line in source["lines"]:
                        lines[line["line_number"]] = lines.get(line["line_number"], 0) + line["count"]
    return reached


def main():
    build = os.path.abspath(sys.argv[1])
    least = float(sys.argv[2]) if len(sys.argv) > 2 else 95.0
    total = hit = 0
    for path, lines in sorted(counts(build).items()):
        with open(os.path.join(ROOT, path)) as file:
            text = file.read().splitlines()
        missed = sorted(n for n, count in lines.items() if not count)
        with open(os.path.join(build, os.path.basename(path) + ".txt"), "w") as out:
            out.writelines("%d: %s\n" % (n, text[n - 1]) for n in missed)
        total += len(lines)
        hit += len(lines) - len(missed)
        print("%-28s %5d lines %6.1f %%" % (path, len(lines), 100.0 * (len(lines) - len(missed)) / max(1, len(lines))))
    percent = 100.0 * hit / max(1, total)
    print("%-28s %5d lines %6.1f %%" % ("src/cuda", total, percent))
    sys.exit(percent < least)


main()
