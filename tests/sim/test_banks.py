#!/usr/bin/env python3
"""No access to shared memory in a loop has more than 2-way bank conflicts.

Reads what the programs of `make sim-access` wrote (tests/sim/access.cpp) to build/sim-access/banks, and finds the lines
of the source by addr2line. build/sim-access/banks.txt lists every access, the worst first."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import tap

BUILD = os.path.join(HERE, "../../build/sim-access")
MOST = 2
# Functions that a block goes through once, outside of its loops, and the conflicts that they may have.
ONCE = {
    "mirt__cu_sums_leave": 5,
}
# Lines of these say how something is accessed, not who accesses it.
WRAPPERS = ("sim_device.h", "math.cuh")


def chains(program, offsets):
    """Of each offset the functions and lines that are inlined there, the innermost first."""
    found, chain = {}, None
    text = subprocess.run(["addr2line", "-e", program, "-a", "-i", "-f", "-C"], input="\n".join(offsets), text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("0x"):
            chain = found["%x" % int(line, 16)] = []
        elif line:
            place = os.path.basename(next(lines)).split(" ")[0]
            chain.append((line.split("(")[0], place))
    return found


class Access:
    """An instruction at a line of one instance of a kernel, summed up over programs."""

    def __init__(self):
        self.worst = self.most = self.executions = self.phases = self.ideal = 0

    def add(self, most, executions, phases, ideal, worst):
        self.most = max(self.most, most)
        self.worst = max(self.worst, worst)
        self.executions += executions
        self.phases += phases
        self.ideal += ideal

    def text(self):
        return "%2d-way, %.2f on average, %d times by a thread at most, %d by warps" % (
            self.worst, self.phases / max(self.ideal, 1), self.most, self.executions)


def read(directory):
    table, once = {}, {}
    for name in sorted(set(os.listdir(directory)) - {"test_access"}):  # whose kernels are made for conflicts
        with open(os.path.join(directory, name)) as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        found = chains(os.path.join(BUILD, name), [row[0] for row in rows])
        for at, text, kind, size, *numbers in rows:
            chain = found[at]
            kernel = re.search(r"mirt__cu_\w+?(?=_kernel\b|\b)|\w+", text).group()
            places = [place for _, place in chain if not place.startswith(WRAPPERS)] or [chain[-1][1]]
            function = chain[-1][0].replace("mirt__cu_", "")
            key = (kernel.replace("mirt__cu_", ""), kind, size, " in ".join(places), function)
            table.setdefault(key, Access()).add(*map(int, numbers))
            for function, _ in chain:
                for name_once in ONCE:
                    if re.search(r"\b%s\b" % name_once, function):
                        once[key] = ONCE[name_once]
    return table, once


def main():
    directory = os.path.join(BUILD, "banks")
    table, once = read(directory)
    order = sorted(table, key=lambda key: (-table[key].worst, key))
    with open(os.path.join(BUILD, "banks.txt"), "w") as file:
        for key in order:
            kernel, kind, size, place, function = key
            file.write("%s: %s, %s of %s bytes at %s of %s\n" % (table[key].text(), kernel, kind, size, place,
                                                                function))
    for kernel in sorted(set(key[0] for key in table)):
        for kind in ("load", "store", "ldmatrix", "cp.async"):
            keys = [key for key in order if key[:2] == (kernel, kind)]
            if not keys:
                continue
            bad = [key for key in keys if table[key].worst > once.get(key, MOST)]
            tap.ok(not bad, "%s: %s, %d-way at most" % (kernel, kind, table[keys[0]].worst))
            for key in bad:
                print("# %s, of %s bytes at %s of %s" % (table[key].text(), key[2], key[3], key[4]))
    tap.ok(any(key[1] == "ldmatrix" for key in table) and any(key[1] == "cp.async" for key in table),
           "%d accesses were looked at, ldmatrix and cp.async among them" % len(table))
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
