#!/usr/bin/env python3
"""Faults planted in the kernels of src/cuda, each of which a simulated test must find.

    tests/sim/planted.py [WORD...]      plants those whose descriptions contain one of the words; none: all

Changes one place in a copy of src/cuda, compiles the test with it, and runs the test with seeds until it fails. A place
that is no longer there once is a failure too: a change that moves it must change PLANTS. `make sim-planted` sets CXX,
LIBS and FLAGS, and builds what the tests are linked with: sim.mk names those that are not in TOGETHER."""
import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(HERE, ".."))
import tap

SEEDS = range(1, 9)
JOBS = int(os.environ.get("JOBS") or 2)
# Tests in C++ that are a translation unit with the kernels, and those in C with the GPU's table beside the CPUs'
# (sim_kernels.c). All others are in C, and programs on devices.
TOGETHER = {"test_multiply"}
BESIDE = {"test_augment", "test_conv_tiles", "test_depthwise", "test_kernels", "test_norm", "test_ops"}
# How a simulator's variant compiles device code; sim-tsan names a missing barrier whatever the order of threads.
VARIANTS = {
    "sim": [],
    "sim-tsan": ["-fsanitize=thread"],
    "sim-access": os.environ.get("ACCESS_FLAGS", "").split(),
    "sim-contract": os.environ.get("CONTRACT_FLAGS", "").split() + ["-O2"],  # less fuses nothing
}

COPIES = "struct mirt__cu_mm_copies {", ("test_multiply", "bfloat16")
REGISTERS = "mirt__cu_mm_through_registers", ("test_multiply", "float32")
WEIGHTS = "mirt__cu_copied_wgrad_kernel(", ("test_products",)
PANEL = "mirt__cu_panel_kernel(", ("test_multiply", "panel")
B_FIRST = "    mirt__cu_panel_ask<BN, MATH>(p, column, steps * tile::k, b);\n"
STAGES_THEN = """#pragma unroll
    for (int s = 0; s < tile::stages - 1; s++) copies.ask(p, stages + s * tile::a_bytes);
"""


def waits(what, source, place, stages):
    """The faults of a wait for copies: it is missing, or allows one stage more to be in flight."""
    function, test = place
    wait = "mirt__cu_cp_async_wait<%s - %%d>();" % stages
    return (("no wait for " + what, source, function, wait % 2, "", test, "sim"),
            ("a wait for %s that is a stage late" % what, source, function, wait % 2, wait % 1, test, "sim"))


# What is planted, file, function in which to look, text, what it becomes, test and its arguments, variant.
PLANTS = (
    ("a stage too few for copies", "multiply.cuh", COPIES[0],
     "newest + stage == end ? 0 : newest + stage", "newest + 2 * stage == end ? 0 : newest + stage",
     COPIES[1], "sim"),
    ("a stage too few, in which all agree", "multiply.cuh", COPIES[0],
     "ahead = tile::stages - 1;", "ahead = tile::stages;", COPIES[1], "sim"),
    *waits("copies", "multiply.cuh", COPIES, "tile::stages"),
    ("copies are not committed", "multiply.cuh", COPIES[0], "mirt__cu_cp_async_commit();", "", COPIES[1], "sim"),
    ("copies are committed only while there are more", "multiply.cuh", COPIES[0], "mirt__cu_cp_async_commit();",
     "if (s + mine::ahead < steps) mirt__cu_cp_async_commit();", COPIES[1], "sim"),
    ("the wrong stage is multiplied", "multiply.cuh", COPIES[0], "sums.add(work + oldest, work + oldest",
     "sums.add(work + newest, work + newest", COPIES[1], "sim"),
    ("the wrong stage of b is multiplied", "multiply.cuh", COPIES[0], "work + oldest + tile::a_bytes",
     "work + newest + tile::a_bytes", COPIES[1], "sim"),
    ("a tap is not looked up", "multiply.cuh", COPIES[0], "if (at.c < p.k) return;", "if (at.c <= p.k) return;",
     COPIES[1], "sim"),
    ("pieces that do not exist are read", "multiply.cuh", COPIES[0], "x[i], there[i]);", "x[i], true);", COPIES[1],
     "sim"),
    ("pieces of another stage are transformed", "multiply.cuh", COPIES[0], "live >> (ahead - 1) * count",
     "live >> (ahead - 2) * count", COPIES[1], "sim"),
    ("channels of another stage", "multiply.cuh", COPIES[0], "c += tile::k;\n        while",
     "c += 2 * tile::k;\n        while", COPIES[1], "sim"),
    ("no barrier between a stage and its product", "multiply.cuh", COPIES[0], "__syncthreads();", "", COPIES[1],
     "sim"),
    ("a stage too few for registers", "multiply.cuh", REGISTERS[0], "(s + 1 - b.first_step) % 2", "0", REGISTERS[1],
     "sim"),
    ("a wrong stage of registers", "multiply.cuh", REGISTERS[0], "(s - b.first_step) % 2 * bytes",
     "(s + 1 - b.first_step) % 2 * bytes", REGISTERS[1], "sim"),
    ("no barrier before the first product", "multiply.cuh", REGISTERS[0],
     "right.store(work + tile::a_bytes);\n    __syncthreads();", "right.store(work + tile::a_bytes);", REGISTERS[1],
     "sim"),
    ("no barrier between products", "multiply.cuh", REGISTERS[0], "        __syncthreads();\n", "", REGISTERS[1],
     "sim"),
    ("no barrier between products and their slab", "multiply.cuh", "mirt__cu_multiply_end(",
     "__syncthreads();\n        sums.put", "if (i > 0) __syncthreads();\n        sums.put", COPIES[1], "sim"),
    ("no barrier between two slabs", "multiply.cuh", "mirt__cu_multiply_end(",
     "__syncthreads();\n        sums.put", "if (i == 0) __syncthreads();\n        sums.put", REGISTERS[1], "sim"),
    ("no barrier between a slab and its end", "multiply.cuh", "mirt__cu_multiply_end(",
     "        __syncthreads();\n        if (i == 0)", "        if (i == 0)", COPIES[1], "sim"),
    ("taps read beside the image", "tiles.cuh", "mirt__cu_mm_taps_that_read",
     "(unsigned)first < (unsigned)source ? 1u : 0u", "1u", COPIES[1], "sim"),
    ("taps stay in the same line", "multiply.cuh", COPIES[0], "by += next_line;", "", COPIES[1], "sim"),
    ("taps begin at any channel", "multiply.cuh", COPIES[0], "by += next_tap;", "by += next_tap + p.k;", COPIES[1],
     "sim"),
    ("a line of taps more than there is", "multiply.cuh", COPIES[0],
     "at.y < MIRT__CU_MM_TAPS ? at.y : MIRT__CU_MM_TAPS", "at.y < 2 ? at.y : 2", COPIES[1], "sim"),
    *waits("copies of weight gradients", "weight_grad.cuh", WEIGHTS, "S::STAGES"),
    ("a stage too few for them", "weight_grad.cuh", WEIGHTS[0], "== S::STAGES * S::STAGE ?",
     "== (S::STAGES - 1) * S::STAGE ?", WEIGHTS[1], "sim"),
    ("no barrier between a stage and its weight gradient", "weight_grad.cuh", WEIGHTS[0],
     "__syncthreads(); /* all of this stage", "/* all of this stage", WEIGHTS[1], "sim"),
    ("the wrong stage of weight gradients", "weight_grad.cuh", WEIGHTS[0], "stage = shared + now;",
     "stage = shared + next;", WEIGHTS[1], "sim"),
    ("pixels are looked up too late", "weight_grad.cuh", WEIGHTS[0], "k + S::AHEAD * S::BK + S::THREADS + thread",
     "k + S::AHEAD * S::BK + thread", WEIGHTS[1], "sim"),
    ("a stage too few for panels", "panel.cuh", "struct mirt__cu_panel {", "ring = tile::stages *",
     "ring = (tile::stages - 1) *", PANEL[1], "sim"),
    *waits("stages of panels", "panel.cuh", PANEL, "tile::stages"),
    ("b of a panel is asked for after its stages", "panel.cuh", PANEL[0], B_FIRST + STAGES_THEN, STAGES_THEN + B_FIRST,
     PANEL[1], "sim"),
    ("no barrier between a stage of panels and its product", "panel.cuh", PANEL[0],
     "            __syncthreads();\n", "", PANEL[1], "sim"),
    ("no barrier before a slab of panels is reused", "panel.cuh", PANEL[0], "            __syncthreads();\n",
     "            if (s > 0) __syncthreads();\n", PANEL[1], "sim"),
    ("no barrier between a tile of panels and its end", "panel.cuh", PANEL[0],
     "sums.put(slab, 0);\n        __syncthreads();", "sums.put(slab, 0);", PANEL[1], "sim"),
    ("panels go over the same rows again", "panel.cuh", "struct mirt__cu_panel_copies {", "x += (int64_t)rows * p.c;",
     "", PANEL[1], "sim"),
    ("panels whose rows overlap", "panel.cuh", PANEL[0], "first = (int64_t)chunk * most;",
     "first = (int64_t)chunk * (most - 8);", PANEL[1], "sim-access"),
    ("no barrier after the table of columns", "multiply.cuh", "mirt__cu_multiply_kernel(", "__syncthreads();", "",
     COPIES[1], "sim"),
    ("no barrier before sums of columns", "epilogue.cuh", "void mirt__cu_sums_leave",
     "__syncthreads(); /* of what was in `shared` */", "", COPIES[1], "sim"),
    ("no barrier between sums of columns", "epilogue.cuh", "void mirt__cu_sums_leave",
     "    __syncthreads();\n    const", "    const", COPIES[1], "sim"),
    ("several blocks say how many numbers a chunk has", "multiply.cuh", "void end(", "group == 0 && first == 0", "true",
     COPIES[1], "sim-access"),
    ("blocks whose columns overlap", "tiles.cuh", "mirt__cu_mm_block_of", "% (unsigned)p.blocks_n) * BN;",
     "% (unsigned)p.blocks_n) * (BN - 8);", COPIES[1], "sim-access"),
    ("no barrier between the sums of two taps", "depthwise.cu", "mirt__cu_depth_parts",
     "__syncthreads();\n        mirt__cu_down_sum", "mirt__cu_down_sum", ("test_depthwise",), "sim"),
    ("a product that may be fused where it is read, and not where it is stored", "multiply.cuh", "mirt__cu_mm_quick",
     "mirt__cu_normed(x[i], c.mean[i], c.factor[i], c.offset[i])",
     "(x[i] - c.mean[i]) * c.factor[i] + c.offset[i]", REGISTERS[1], "sim-contract"),
)


def changed(plant, text):
    """The text with the fault; None: there is not one such place from the function's first mention to the next line
    that is a closing brace."""
    _, _, function, old, new, _, _ = plant
    begin = text.find(function)
    end = text.find("\n}\n", begin)
    part = text[begin:end]
    if part.count(old) != 1:
        return None
    return text[:begin] + part.replace(old, new) + text[end:]


def build(plant, home):
    """The test's program with the fault, or what the compiler said."""
    _, source, _, _, _, (test, *_), variant = plant
    os.makedirs(os.path.join(home, "tests/sim"))
    os.makedirs(os.path.join(home, "build"))
    shutil.copytree(os.path.join(ROOT, "src/cuda"), os.path.join(home, "src/cuda"))
    for name in os.listdir(os.path.join(ROOT, "src")):
        if name != "cuda":
            os.symlink(os.path.join(ROOT, "src", name), os.path.join(home, "src", name))
    os.symlink(os.path.join(ROOT, "mirrortrain.h"), os.path.join(home, "mirrortrain.h"))
    path = os.path.join(home, "src/cuda", source)
    with open(path) as file:
        text = changed(plant, file.read())
    if text is None:
        return None, "there is not one such place"
    with open(path, "w") as file:
        file.write(text)
    built, program = os.path.join(ROOT, "build", variant), os.path.join(home, test)
    include = ["-I" + home, "-I" + os.path.join(ROOT, "tests"), "-I" + HERE, "-include", HERE + "/sim_device.h"]
    if test in TOGETHER:
        unit, flags = os.path.join(home, "tests/sim", test + ".cpp"), os.environ["FLAGS"].split()
        shutil.copy(os.path.join(HERE, test + ".cpp"), unit)
        rest = []
    else:
        unit, flags = os.path.join(home, "build/cuda_parts.cu"), ["-DMIRT_SIM", "-x", "c++"]
        shutil.copy(os.path.join(ROOT, "build/cuda_parts.cu"), unit)
        parts = {"sim-tsan": "tsan"}.get(variant, "tests")
        rest = ["%s/c/%s.o" % (built, test)] + (["%s/sim_kernels.o" % built] if test in BESIDE else [])
        rest += ["-Wl,--wrap=" + name for name in ("mirt__kernel_tables", "mirt__kernels_best") if test in BESIDE]
        rest.append("build/%s/parts.a" % parts)
    compiler = os.environ["CXX"].split()
    link = ["-fsanitize=thread"] if variant == "sim-tsan" else []
    for command in (compiler + VARIANTS[variant] + include + flags + ["-c", unit, "-o", program + ".o"],
                    compiler + link + ["-rdynamic", program + ".o"] + rest + [built + "/simulator.a", "-o", program] +
                    os.environ["LIBS"].split()):
        made = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if made.returncode != 0:
            return None, made.stdout[-300:]
    return program, None


def find(plant):
    """Whether the test notices, and how."""
    with tempfile.TemporaryDirectory(prefix="mirt_planted.") as home:
        program, why = build(plant, home)
        if not program:
            return False, why
        for seed in SEEDS:
            where = dict(os.environ, MIRT_SIM_SEED=str(seed), MIRT_TEST_SMALL="1", TSAN_OPTIONS="halt_on_error=1")
            if seed % 2 == 1:
                where["MIRT_TEST_ALIGNED"] = "1"
            try:
                made = subprocess.run([program] + list(plant[5][1:]), env=where, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=300)
            except subprocess.TimeoutExpired:
                return True, "seed %d: does not end" % seed
            if made.returncode != 0:
                said = made.stdout.decode(errors="replace").split("\n")
                first = [line for line in said if line.startswith(("not ok", "sim: ", "WARNING"))] or ["a crash"]
                return True, "seed %d: %s" % (seed, first[0][:100])
    return False, "not with %d seeds" % len(SEEDS)


def main():
    words = sys.argv[1:]
    plants = [plant for plant in PLANTS if not words or any(word in plant[0] for word in words)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for plant, (found, how) in zip(plants, pool.map(find, plants)):
            tap.ok(found, "%s: %s" % (plant[0], how))
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
