#!/usr/bin/env python3
"""No function leaves the upper halves of vector registers in use.

    check_vectors.py OBJECT...

The caller's SSE code, such as that of the C library, runs up to 50 times slower while the upper halves of ymm or zmm
registers are in use. In
an x86-64 object, every path from an instruction that writes ymm or zmm to a return, or to a jump into a function that
does not write
them, must pass a vzeroupper. A function that returns a vector is a part of the function that calls it. Prints a line
for each function that breaks the rule; exit status 1 if there is any."""
import re
import subprocess
import sys

# Inlined by most compilers, not by all.
RETURNS_VECTOR = re.compile(
    r"mirt__(activate_any|slope_any|exp|expm1|sigmoid|sum_parts|shaped|averaged)_(avx2|avx512|avx512bf16)"
)
WIDE = re.compile(r"%[yz]mm\d+")
FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(?:bnd |notrack |rep |repz |lock )?(\S+)\s*(.*)$")
TARGET = re.compile(r"^\*?([0-9a-f]+) <([^>+]+)(\+0x[0-9a-f]+)?>")


class Function:
    def __init__(self, name):
        self.name, self.code, self.index = name, [], {}
        self.wide = False

    def add(self, address, op, operands):
        self.index[address] = len(self.code)
        self.code.append((address, op, operands))
        # AT&T order: the destination is last; comparisons into masks and stores write no vector register.
        if WIDE.search(operands.split("#")[0]) and not op.startswith("vzero"):
            self.wide = True


def functions(path):
    text = subprocess.run(
        ["objdump", "-d", "-r", "--no-show-raw-insn", "--wide", path], capture_output=True, text=True, check=True
    ).stdout
    found, current, relocation = [], None, re.compile(r"^\s*[0-9a-f]+: R_X86_64_\S+\s+(\S+?)([-+]0x[0-9a-f]+)?$")
    for line in text.splitlines():
        match = FUNCTION.match(line)
        if match:
            current = Function(match.group(2))
            found.append(current)
            continue
        if not current:
            continue
        match = relocation.match(line)
        if match and current.code:  # the name that a call or jump will have
            address, op, operands = current.code[-1]
            if op.startswith(("call", "jmp")):
                current.code[-1] = (address, op, "external <%s>" % match.group(1))
            continue
        match = LINE.match(line)
        if match:
            current.add(int(match.group(1), 16), match.group(2), match.group(3).strip())
    return found


def writes_wide(op, operands):
    last = operands.split("#")[0].rstrip()
    last = re.sub(r"\{[^}]*\}", "", last).strip()
    return bool(re.search(r"%[yz]mm\d+$", last)) and not op.startswith(("vptest", "vtest", "vucomi", "vcomi"))


def leaders(function):
    """Where basic blocks begin: at targets of jumps, and after instructions that never continue with the next one."""
    found, ends = set(), ("jmp", "ret", "ud2", "hlt")
    for at, (_, op, operands) in enumerate(function.code):
        target = TARGET.match(operands) if op.startswith("j") else None
        if target and int(target.group(1), 16) in function.index:
            found.add(function.index[int(target.group(1), 16)])
        if op.startswith(ends) and at + 1 < len(function.code):
            found.add(at + 1)
    return found


def dirty_at_return(function, names, exempt):
    """The address of an exit that is reached with upper halves in use, or None."""
    seen = [set() for _ in function.code]
    todo = [(0, False)] if function.code else []
    while todo:
        at, dirty = todo.pop()
        if at >= len(function.code) or dirty in seen[at]:
            continue
        seen[at].add(dirty)
        address, op, operands = function.code[at]
        if op.startswith("vzero"):
            dirty = False
        elif writes_wide(op, operands):
            dirty = True
        elif op.startswith("call"):
            target = re.search(r"<([^>+]+)", operands)
            dirty = bool(target and target.group(1) in exempt)
        if op.startswith("ret"):
            if dirty:
                return address
            continue
        if op.startswith("j"):
            target = TARGET.match(operands)
            inside = target and int(target.group(1), 16) in function.index
            if inside:
                todo.append((function.index[int(target.group(1), 16)], dirty))
            elif dirty and op == "jmp":
                name = target.group(2) if target else (re.search(r"<([^>]+)", operands) or [None, None])[1]
                if name is None and operands.startswith("*"):
                    todo.extend((i, dirty) for i in leaders(function))  # a jump table
                elif name not in names or not names[name].wide:
                    return address
            if op == "jmp":
                continue
        if op.startswith(("ud2", "hlt")):
            continue
        todo.append((at + 1, dirty))
    return None


def main(paths):
    failed = False
    for path in paths:
        bad = 0
        found = functions(path)
        names = {f.name: f for f in found}
        exempt = {f.name for f in found if f.wide and RETURNS_VECTOR.search(f.name)}
        wide = [f for f in found if f.wide]
        if not wide:
            print("%s: no function uses wide vectors" % path)
        for f in wide:
            address = None if f.name in exempt else dirty_at_return(f, names, exempt)
            if address is not None:
                print("%s: %s leaves upper halves in use at %x" % (path, f.name, address))
                bad += 1
        failed = failed or bad > 0
        print(
            "%s: %d functions use wide vectors, %d return one, %d leave upper halves in use"
            % (path, len(wide), len(exempt), bad)
        )
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: check_vectors.py OBJECT...")
    sys.exit(main(sys.argv[1:]))
