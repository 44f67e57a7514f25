#!/usr/bin/env python3
"""The share of tensor instructions in loops of machine code."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import sass
from tap import done, ok


def function(name, *instructions):
    """As cuobjdump -sass prints a function of these instructions; {i}: the address of instruction i."""
    addresses = ["0x%x" % (16 * i) for i in range(len(instructions))]
    lines = ["\t\tFunction : %s" % name, '\t.headerflags\t@"EF_CUDA_SM90"']
    for i, text in enumerate(instructions):
        lines.append("        /*%04x*/    %18s ;    /* 0x0000000000007918 */" % (16 * i, text.format(*addresses)))
        lines.append(" " * 60 + "/* 0x000fc00000000000 */")
    return "\n".join(lines) + "\n"


# The loop is 2 to 17. It copies or not, transforms in a loop of its own or not, and multiplies.
MIXED = function(
    "_Z15multiply_kernelILi2EEv4args",
    "MOV R1, R2", "@P6 BRA {18}",
    "@!P0 BRA {6}", "LDGSTS.E.BYPASS.128 [R1], [R2.64]", "LDGSTS.E.BYPASS.128 [R3], [R4.64]", "IADD3 R1, R1, 0x10, RZ",
    "LDGDEPBAR", "@P1 BRA {11}",
    "FFMA R5, R6, R7, R8", "STS [R5], R5", "@P2 BRA {8}",
    "LDSM.16.M88.4 R4, [R9]", "HMMA.16816.F32.BF16 R4, R4, R8, R4", "HMMA.16816.F32.BF16 R12, R4, R8, R12",
    "HMMA.16816.F32.BF16 R16, R4, R8, R16", "BAR.SYNC.DEFER_BLOCKING 0x0", "ISETP.NE.AND P3, PT, R1, R2, PT",
    "@P3 BRA {2}",
    "EXIT", "BRA {19}")
# Always transforms; the loop around it is not innermost.
ALWAYS = function(
    "_Z12wgrad_kernelv", "MOV R1, R2", "FMUL R1, R1, R2", "STS [R1], R1", "HMMA.16816.F32.BF16 R4, R4, R8, R4",
    "@P0 BRA {1}", "@P1 BRA {0}", "EXIT")
OTHER = function("_Z4copyv", "LDG.E R1, [R2]", "@P0 BRA {0}", "EXIT")


def run(text, *flags, exceptions="", environment=None):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("text", "exceptions")]
        for path, content in zip(paths, (text, exceptions)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        result = subprocess.run([sys.executable, sass.__file__, "--exceptions", paths[1]] +
                                (list(flags) if "--object" in flags else [paths[0], *flags]),
                                capture_output=True, text=True, env=environment)
        return result.returncode, result.stdout + result.stderr


code = sass.read((MIXED + ALWAYS + OTHER).splitlines())
ok([len(body) for body in code.values()] == [20, 7, 3], "instructions of each function")
ok(list(sass.read((MIXED + OTHER).splitlines(), "copy")) == ["_Z4copyv"], "or of some of them")
mixed = list(sass.loops("mixed", code["_Z15multiply_kernelILi2EEv4args"]))
ok(len(mixed) == 1 and (mixed[0].first, mixed[0].last) == (0x20, 0x110), "one loop multiplies")
ok(mixed[0].all == 16 and mixed[0].all_hmma == 3 and mixed[0].all_transforms == 1, "all of it, loops inside once")
ok(mixed[0].usual == 13 and mixed[0].usual_hmma == 3 and mixed[0].usual_transforms == 0,
   "the usual way copies, and does not transform: %d instructions" % mixed[0].usual)
always = list(sass.loops("always", code["_Z12wgrad_kernelv"]))
ok([(loop.first, loop.usual, loop.usual_hmma, loop.usual_transforms) for loop in always] == [(0x10, 4, 1, 1)],
   "the innermost loop counts, with its transforms")

status, text = run(MIXED + ALWAYS + OTHER)
ok(status == 0 and "| 20-110 | 13 | 3 | 0.23 | 16 | 3 | 0.19 | some |" in text and
   "| 10-40 | 4 | 1 | 0.25 | 4 | 1 | 0.25 | always |" in text and "copy" not in text, "a table of both")
ok(run(MIXED, "--plain", "0.2", "--transforms", "0.15")[0] == 0, "shares that suffice")
status, text = run(MIXED, "--plain", "0.25", "--transforms", "0.15")
ok(status == 1 and "0.23 of the loop at 20, plain, less than 0.25: too little" in text, "too little on the usual way")
status, text = run(MIXED, "--plain", "0.2", "--transforms", "0.2")
ok(status == 1 and "0.19 of the loop at 20, transforms, less than 0.2: too little" in text, "too little of all")
ok(run(ALWAYS, "--plain", "0.5", "--transforms", "0.2")[0] == 0 and run(ALWAYS, "--transforms", "0.3")[0] == 1,
   "a loop that always transforms needs the share with transforms")
good = "plain 90 | multiply_kernel<2> | 0.2 | edges\n"
status, text = run(MIXED, "--plain", "0.25", exceptions=good)
ok(status == 0 and ": edges" in text, "an exception gives its reason")
ok(run(MIXED, "--plain", "0.25", exceptions=good.replace("0.2 ", "0.24 "))[0] == 1, "and has a least of its own")
ok(run(MIXED, "--plain", "0.2", exceptions=good)[0] == 1, "one that is not needed is an error")
ok(run(OTHER)[0] == 1, "so is code without such loops")

FINE = function("_Z4finev", "VIMNMX R48, R46, 0x4, PT", "VIMNMX.RELU R48, PT, PT, R46, 0x4, PT", "EXIT")
WRONG = function("_Z5wrongv", "VIMNMX.RELU R48, P2, P2, R46, 0x4, PT", "EXIT")
status, text = run(FINE, "--limits")
ok(status == 0 and "1 kernels, 0 limits" in text, "limits alone are fine")
status, text = run(FINE + WRONG, "--limits")
ok(status == 1 and "_Z5wrongv: VIMNMX.RELU R48, P2, P2, R46, 0x4, PT at 0" in text and text.endswith(": too many\n"),
   "one whose comparison is used is named")
ok(run("", "--limits")[0] == 1, "and no code is an error")

with tempfile.TemporaryDirectory() as folder:
    log, program = os.path.join(folder, "log"), os.path.join(folder, "cuobjdump")
    with open(log, "w", encoding="utf-8") as file:
        file.write("ptxas info    : Compiling entry function '_Z12wgrad_kernelv' for 'sm_90'\n"
                   "ptxas info    : Compiling entry function '_Z4copyv' for 'sm_90'\n")
    with open(program, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\n[ "$*" = "-sass -fun _Z12wgrad_kernelv object" ] || exit 3\n')
        file.write("cat <<'END'\n%sEND\n" % ALWAYS)
    os.chmod(program, 0o755)
    flags = ("--object", "object", "--log", log, "--kernels", "wgrad")
    status, text = run("", *flags, environment=dict(os.environ, MIRT_CUOBJDUMP=program))
    ok(status == 0 and "| 10-40 |" in text, "cuobjdump is asked for these kernels")
    nothing = {key: value for key, value in os.environ.items() if key != "MIRT_CUOBJDUMP"}
    status, text = run("", *flags, environment=dict(nothing, PATH=folder + "/nothing"))
    ok(status == sass.SKIPPED and "no cuobjdump" in text, "without it the tool says so")
sys.exit(done())
