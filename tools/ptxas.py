#!/usr/bin/env python3
"""Registers, shared memory and spilled bytes of each kernel that ptxas compiled.

    nvcc -arch=sm_90 -Xptxas -v -c mirrortrain_cuda.cu -o cuda.o 2>log
    tools/ptxas.py log [--hot REGEX] [--all]

Prints a Markdown table of the kernels that spill (all: of every kernel). --hot: none whose name matches may spill; the
exit status is 1 if one does, or if the log has no kernels.
"""
import argparse
import re
import subprocess
import sys


def demangled(names):
    """Short names, without arguments and the namespaces of templates' types; as they are without c++filt."""
    try:
        text = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True,
                              check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {name: name for name in names}
    shown = [re.sub(r"\(([a-z_]\w*)\)", "", line.replace("mirt__cu_", "")) for line in text.split("\n")]
    return dict(zip(names, shown))


def read(log):
    """{mangled name: {"registers", "shared", "stack", "stores", "loads"}} of the entry functions in ptxas -v's text.

    "Function properties" of other functions follow those of an entry function: each line of spills belongs to the
    function that was named last, not to the entry function that is being compiled."""
    kernels, of, at = {}, None, None
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            of = found.group(1)
            kernels[of] = {"registers": 0, "shared": 0, "stack": 0, "stores": 0, "loads": 0}
        elif found := re.search(r"Function properties for (\S+)", line):
            at = found.group(1).strip("'")
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if at in kernels:
                kernels[at].update(zip(("stack", "stores", "loads"), map(int, found.groups())))
        elif (found := re.search(r"Used (\d+) registers", line)) and of:
            kernels[of]["registers"] = int(found.group(1))
            shared = re.search(r"(\d+)(?:\+\d+)? bytes smem", line)
            kernels[of]["shared"] = int(shared.group(1)) if shared else 0
    return kernels


class Exceptions:
    """Kernels that may have less than the least of a figure, from a file of lines

        FIGURE ARCHITECTURE,... | KERNEL | LEAST | reason

    KERNEL is a regular expression for the whole short name without spaces, LEAST what the kernel must have instead."""

    def __init__(self, path, figure, architecture):
        self.lines, self.used = [], set()
        if not path:
            return
        with open(path, encoding="utf-8") as file:
            for line in file:
                if not line.strip() or line.startswith("#"):
                    continue
                head, kernel, least, reason = (part.strip() for part in line.split("|", 3))
                what, architectures = head.split()
                if what == figure and architecture in architectures.split(","):
                    self.lines.append((kernel, float(least), reason))

    def reason(self, kernel, value):
        """Why this kernel may have this little; None: it may not."""
        for line in self.lines:
            if re.fullmatch(line[0], kernel.replace(" ", "")):
                self.used.add(line)
                if value >= line[1]:
                    return line[2]
        return None

    def unused(self):
        return [line[0] for line in self.lines if line not in self.used]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("log")
    parser.add_argument("--hot", default="$^", help="none of these kernels may spill")
    parser.add_argument("--all", action="store_true", help="list those that do not spill, too")
    args = parser.parse_args()
    try:
        with open(args.log, encoding="utf-8", errors="replace") as file:
            kernels = read(file.read())
    except OSError as error:
        print("ptxas: %s" % error, file=sys.stderr)
        return 1
    names = demangled(sorted(kernels))
    spilling = [k for k, facts in kernels.items() if facts["stores"] or facts["loads"]]
    hot = [k for k in spilling if re.search(args.hot, k)]
    listed = sorted(kernels if args.all else spilling, key=lambda k: names[k])
    if listed:
        print("| kernel | registers | shared memory, bytes | spilled, bytes | |\n|---|---|---|---|---|")
    for k in listed:
        facts = kernels[k]
        print("| %s | %d | %d | %d | %s |" %
              (names[k], facts["registers"], facts["shared"], facts["stores"], "hot" if k in hot else ""))
    print("%d kernels, at most %d registers, %d that spill, %d of them hot" %
          (len(kernels), max((facts["registers"] for facts in kernels.values()), default=0), len(spilling), len(hot)))
    return 1 if hot or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
