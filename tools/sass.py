#!/usr/bin/env python3
"""The share of tensor instructions in the innermost loops of matrix products, from machine code.

    tools/sass.py --object cuda.o --log log [--kernels REGEX] [--architecture 90] [--plain 0.25 --transforms 0.15]
    cuobjdump -sass cuda.o | tools/sass.py -

Prints a Markdown table of the loops with HMMA that have no such loop inside. "usual": instructions on the way through
the loop that multiplies, copies the next operands, and has the fewest others; loops inside count once. "all": of the
whole loop, with all that is alternative. Transforms are arithmetic on float32 in the loop: none, on some ways through
it, or always. --plain: the least share of a usual way without transforms; --transforms: of one with transforms, or of
all, if only other ways have them. The exit status is 1 if a loop has less and no exception (--exceptions FILE,
ptxas.Exceptions), if an exception is not needed, or if there are no such loops.

--limits looks for something else instead: limits of integers whose comparison is used as well (VIMNMX that writes a
predicate). ptxas 13.0 makes min(n, 4) == 4 one of them, which the H200 finds false where n is 4. The exit status is 1
if there are any.

--log is what nvcc -Xptxas -v printed: names of kernels. cuobjdump is MIRT_CUOBJDUMP, or found on PATH, or beside nvcc;
without it the tool says so, and the exit status is 77.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple

import ptxas

SKIPPED = 77
LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
# Arithmetic on numbers that are multiplied later.
TRANSFORMS = {"FFMA", "FMUL", "FADD", "FMNMX", "HFMA2", "HMUL2", "HADD2", "MUFU"}

Instruction = namedtuple("Instruction", "address conditional name operands")
Loop = namedtuple("Loop", "kernel first last usual usual_hmma usual_transforms all all_hmma all_transforms")


def read(lines, kernels=".*"):
    """{mangled name: [instruction]} of cuobjdump -sass's text."""
    code, now = {}, None
    for line in lines:
        if "Function :" in line:
            name = line.split()[-1]
            now = code.setdefault(name, []) if re.search(kernels, name) else None
        elif now is not None and (found := LINE.match(line)):
            address, predicate, name, operands = found.groups()
            now.append(Instruction(int(address, 16), bool(predicate), name, operands.strip()))
    return code


def kind(instruction):
    return instruction.name.split(".")[0]


def target(instruction):
    """Where a branch leads; None: it is none, or leads where a register says."""
    found = re.search(r"0x([0-9a-f]+)\)?$", instruction.operands) if kind(instruction) == "BRA" else None
    return int(found.group(1), 16) if found else None


def goes_on(instruction):
    """Whether the next instruction may follow."""
    if kind(instruction) in ("EXIT", "RET", "BRX", "JMP"):
        return instruction.conditional
    return kind(instruction) != "BRA" or instruction.conditional or "," in instruction.operands


def ranges(code):
    """(first, last) instruction of each loop: from where branches lead back to, to the last of these."""
    index = {instruction.address: i for i, instruction in enumerate(code)}
    last = {}
    for i, instruction in enumerate(code):
        first = index.get(target(instruction))
        if first is not None and first <= i:
            last[first] = i
    return sorted(last.items())


def usual_way(code, first, last):
    """Instructions on the way once through a loop that multiplies most, then copies most to shared memory, and has the
    fewest others. It follows branches forward alone, so that loops inside are gone through once."""
    index = {code[i].address: i for i in range(first, last + 1)}
    copy = "LDGSTS" if count(code[first:last + 1], {"LDGSTS"}) else "STS"
    best, came, end = {first: (0, 0, 0)}, {}, None
    for i in range(first, last + 1):
        if i not in best:
            continue
        instruction = code[i]
        so_far = (best[i][0] + (kind(instruction) == "HMMA"), best[i][1] + (kind(instruction) == copy), best[i][2] - 1)
        to = index.get(target(instruction), -1)
        if to == first and (end is None or so_far > end[0]):
            end = (so_far, i)
        for j in [to] * (to > i) + [i + 1] * (goes_on(instruction) and i < last):
            if j not in best or so_far > best[j]:
                best[j], came[j] = so_far, i
    way, at = [], end[1] if end else None
    while at is not None:
        way.append(code[at])
        at = came.get(at)
    return way


def count(instructions, names):
    return sum(kind(instruction) in names for instruction in instructions)


def loops(kernel, code):
    """The innermost loops with HMMA."""
    found = [(first, last) for first, last in ranges(code) if count(code[first:last + 1], {"HMMA"})]
    for first, last in found:
        if any(first <= f and l <= last and (f, l) != (first, last) for f, l in found):
            continue
        body, way = code[first:last + 1], usual_way(code, first, last)
        yield Loop(kernel, code[first].address, code[last].address, len(way), count(way, {"HMMA"}),
                   count(way, TRANSFORMS), len(body), count(body, {"HMMA"}), count(body, TRANSFORMS))


def cuobjdump():
    """The program; None: there is none."""
    found = os.environ.get("MIRT_CUOBJDUMP") or shutil.which("cuobjdump")
    nvcc = shutil.which("nvcc")
    if not found and nvcc:
        found = shutil.which("cuobjdump", path=os.path.dirname(os.path.realpath(nvcc)))
    return found


def disassembled(program, path, names):
    """The text of these kernels; nvdisasm, which cuobjdump calls, is beside it."""
    environment = dict(os.environ, PATH=os.path.dirname(program) + os.pathsep + os.environ.get("PATH", ""))
    return subprocess.run([program, "-sass", "-fun", ",".join(names), path], capture_output=True, text=True, check=True,
                          env=environment).stdout.splitlines()


def limits(code):
    """(kernel, instruction) of each limit whose comparison is used."""
    for kernel, body in code.items():
        for instruction in body:
            if kind(instruction) == "VIMNMX" and re.match(r"\w+, P[0-6]\b", instruction.operands):
                yield kernel, instruction


def report_limits(code):
    """The exit status."""
    found = list(limits(code))
    for kernel, instruction in found:
        print("%s: %s %s at %x: the comparison of a limit is used" %
              (kernel, instruction.name, instruction.operands, instruction.address))
    print("%d kernels, %d limits whose comparison is used%s" %
          (len(code), len(found), ": too many" if found else ""))
    return 1 if found or not code else 0


def figures(loop):
    """(share, least's name) of what is judged."""
    yield loop.usual_hmma / max(loop.usual, 1), "transforms" if loop.usual_transforms else "plain"
    if loop.all_transforms and not loop.usual_transforms:
        yield loop.all_hmma / loop.all, "transforms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", nargs="?", help="what cuobjdump -sass printed, - for stdin")
    parser.add_argument("--object", help="what nvcc compiled, instead of a text")
    parser.add_argument("--log", help="with --object: what nvcc -Xptxas -v printed")
    parser.add_argument("--kernels", default=".*", help="a regular expression of kernels' mangled names")
    parser.add_argument("--architecture", default="90", help="for exceptions")
    parser.add_argument("--plain", type=float, default=0, help="the least share without transforms")
    parser.add_argument("--transforms", type=float, default=0, help="the least share with transforms")
    parser.add_argument("--exceptions", help="a file: kernels that may have less")
    parser.add_argument("--limits", action="store_true", help="look for limits whose comparison is used")
    args = parser.parse_args()
    if bool(args.text) == bool(args.object) or bool(args.object) != bool(args.log):
        parser.error("a text, or --object and --log")
    try:
        exceptions = {figure: ptxas.Exceptions(args.exceptions, figure, args.architecture)
                      for figure in ("plain", "transforms")}
        if args.object:
            program = cuobjdump()
            if not program:
                print("sass: no cuobjdump: MIRT_CUOBJDUMP names none, and there is none on PATH or beside nvcc")
                return SKIPPED
            with open(args.log, encoding="utf-8", errors="replace") as file:
                names = [name for name in ptxas.read(file.read()) if re.search(args.kernels, name)]
            lines = disassembled(program, args.object, names) if names else []
        else:
            with sys.stdin if args.text == "-" else open(args.text, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
    except (OSError, subprocess.CalledProcessError) as error:
        print("sass: %s" % error, file=sys.stderr)
        return 1
    code = read(lines, args.kernels)
    if args.limits:
        return report_limits(code)
    names = ptxas.demangled(sorted(code))
    table = sorted((loop for kernel, body in code.items() for loop in loops(kernel, body)),
                   key=lambda loop: (names[loop.kernel], loop.first))
    least, wrong, notes = {"plain": args.plain, "transforms": args.transforms}, 0, []
    if table:
        print("| kernel | loop | usual | HMMA | share | all | HMMA | share | transforms |\n"
              "|---|---|---|---|---|---|---|---|---|")
    for loop in table:
        print("| %s | %x-%x | %d | %d | %.2f | %d | %d | %.2f | %s |" %
              (names[loop.kernel], loop.first, loop.last, loop.usual, loop.usual_hmma,
               loop.usual_hmma / max(loop.usual, 1), loop.all, loop.all_hmma, loop.all_hmma / loop.all,
               "always" if loop.usual_transforms else "some" if loop.all_transforms else "none"))
        for share, which in figures(loop):
            if share < least[which]:
                reason = exceptions[which].reason(names[loop.kernel], share)
                wrong += reason is None
                notes.append("%s: %.2f of the loop at %x, %s, less than %g: %s" %
                             (names[loop.kernel], share, loop.first, which, least[which], reason or "too little"))
    print("\n".join([""] + notes))
    unused = [kernel for figure in exceptions.values() for kernel in figure.unused()]
    for kernel in unused:
        print("the exception of %s is not needed" % kernel)
    print("%d loops with tensor instructions, %d figures too low without an exception" % (len(table), wrong))
    return 1 if wrong or unused or not table else 0


if __name__ == "__main__":
    sys.exit(main())
