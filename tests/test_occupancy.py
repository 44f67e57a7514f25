#!/usr/bin/env python3
"""Warps per processor of recorded launches, and their share of the modeled step."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import gpu_model
import occupancy
from tap import done, ok

# Architecture, threads, registers, bytes of shared memory; blocks by NVIDIA's calculator, cuda_occupancy.h.
RESIDENT = (
    ("90", 128, 243, 71680, 2), ("90", 256, 215, 39936, 1), ("90", 128, 200, 20992, 2), ("90", 256, 116, 0, 2),
    ("90", 96, 139, 2312, 4), ("90", 1024, 28, 8192, 2), ("90", 128, 243, 110000, 2), ("90", 32, 16, 0, 32),
    ("90", 64, 255, 232448, 1), ("90", 64, 255, 232449, 0), ("90", 512, 128, 13288, 1), ("90", 1024, 64, 0, 1),
    ("90", 1024, 65, 0, 0), ("90", 120, 167, 2936, 3), ("80", 128, 200, 80000, 2), ("80", 96, 33, 1000, 16),
    ("80", 320, 40, 4096, 4), ("80", 1024, 64, 166912, 1), ("80", 1024, 64, 166913, 0),
)
LOG = """\
ptxas info    : Compiling entry function '_Z24mirt__cu_multiply_kernelILi128EEv4args' for 'sm_90'
ptxas info    : Used 243 registers, used 1 barriers
ptxas info    : Compiling entry function '_Z23mirt__cu_mm_pack_kernel4args' for 'sm_90'
ptxas info    : Used 40 registers, used 1 barriers, 4224 bytes smem
ptxas info    : Compiling entry function '_Z20mirt__cu_norm_kernel4args' for 'sm_90'
ptxas info    : Used 32 registers
ptxas info    : Compiling entry function '_Z22mirt__cu_update_kernel4args' for 'sm_90'
ptxas info    : Used 32 registers
"""
RECORD = """\
launches small train 256 56
|  constant                 normalization  float32 (3, 3) @arena+0
|  normalize                bn             bfloat16 (rows, 56, 56, 64) @arena+0  +relu
|  conv2d                   conv           bfloat16 (rows, 56, 56, 64) @arena+0, float32 (64) @state+0  +moments
|  conv2d                   wide           bfloat16 (rows, 28, 28, 64) @arena+0
|  conv2d_weight_grad       conv           float32 (1, 1, 64, 64) @gradient+0, float32 (64) @gradient+16384
|  conv2d_input_grad  conv  bfloat16 (rows, 56, 56, 64) @arena+0, float32 (1, 1, 64, 64) @gradient+0  +weight gradient
kernel _Z20mirt__cu_norm_kernel4args GRID 1 1 1 BLOCK 256 1 1 SHARED 0
node 0
kernel _ZL20mirt__cu_norm_kernel4args GRID 2048 1 1 BLOCK 256 1 1 SHARED 0
node 1
kernel _ZL23mirt__cu_mm_pack_kernel4args GRID 4 1 1 BLOCK 32 8 1 SHARED 0
kernel _Z24mirt__cu_multiply_kernelILi128EEv4args GRID 3136 2 1 BLOCK 128 1 1 SHARED 71680
node 2 KERNEL 1 1 64 64 IMAGE bfloat16 256 56 56 64
kernel _Z24mirt__cu_multiply_kernelILi128EEv4args GRID 132 1 1 BLOCK 128 1 1 SHARED 150000
node 3 KERNEL 1 1 64 64 IMAGE bfloat16 256 56 56 64
product M 64 N 64 K 802816 TIMES 1
node 4
product M 64 N 64 K 802816 TIMES 1
kernel _Z24mirt__cu_multiply_kernelILi128EEv4args GRID 3136 2 1 BLOCK 128 1 1 SHARED 71680
node 5 KERNEL 1 1 64 64 IMAGE bfloat16 256 56 56 64
kernel _Z22mirt__cu_update_kernel4args GRID 17 1 1 BLOCK 256 1 1 SHARED 0
end
"""


def run(record, *flags, log=LOG, exceptions=""):
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("record", "log", "exceptions")]
        for path, text in zip(paths, (record, log, exceptions)):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        result = subprocess.run([sys.executable, occupancy.__file__, paths[0], *flags] +
                                (["--log", paths[1], "--exceptions", paths[2]] if "--library" not in flags else []),
                                capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr


for architecture, threads, registers, shared, blocks in RESIDENT:
    got = occupancy.resident(occupancy.PROCESSORS[architecture], threads, registers, shared)
    ok(got == blocks, "sm_%s, %d threads of %d registers, %d bytes: %d blocks, not %d" %
       (architecture, threads, registers, shared, blocks, got))

record = occupancy.read(RECORD, "record")
ok((record.model, record.mode, record.batch, record.size) == ("small", "train", 256, 56), "a record says what it is of")
ok([group.line for group in record.groups] == [0, 1, 2, 3, 4, 5, None], "launches are those of their node")
ok(record.groups[2].launches[1] == occupancy.Launch("_Z24mirt__cu_multiply_kernelILi128EEv4args", 6272, 128, 71680, 0),
   "with their blocks and threads: %s" % (record.groups[2].launches[1],))
seconds, total = occupancy.modeled(record, gpu_model.GPUS["h200"])
ok(abs(sum(part for parts in seconds.values() for _, part in parts) - total) < 1e-12 and 0 not in seconds,
   "seconds of nodes add up to the step's")
moved = 2 * 2 * 256 * 56 * 56 * 64
alone = gpu_model.Model(gpu_model.GPUS["h200"]).add("normalize", moved)
ok([kind for kind, _ in seconds[1]] == ["normalize"] and seconds[1][0][1] == alone, "a node's are those of the model")
ok([kind for kind, _ in seconds[None]] == ["update"], "after the last node there is the update")
names = {launch.kernel: launch.kernel for group in record.groups for launch in group.launches if launch.kernel}
names["_Z23mirt__cu_mm_pack_kernel4args"] = "mm_pack_kernel"
parts = occupancy.shares(record, record.groups[2], seconds[2], names, total)
ok(parts[0] == 0 and abs(parts[1] - seconds[2][0][1] / total) < 1e-12, "a node's time is that of its main kernel")
both = occupancy.shares(record, record.groups[5], seconds[5], names, total)
ok(len(both) == 2 and [abs(share * total - part) < 1e-12 for share, (_, part) in zip(reversed(both), seconds[5])] ==
   [True, True], "of two gradients by one node, each launch has its own: %s" % [kind for kind, _ in seconds[5]])

status, text = run(RECORD, "--least", "12")
ok(status == 1 and "| multiply_kernel<128> | 2 | 6272 | 128 | 243 | 71680 | 8 | 23.8 |" in text,
   "eight warps are too few")
ok("| multiply_kernel<128> | 1 | 132 | 128 | 243 | 150000 | 4 | 1.0 |" in text, "launches with other warps have lines")
ok("| norm_kernel | 2 | 1-2048 | 256 | 32 | 0 | 64 | 0.0-1.9 |" in text, "launches with the same warps are one")
ok("| mm_pack_kernel | 1 | 4 | 256 | 40 | 4224 | 48 | 0.0 |  |  |" in text, "helpers have static memory, and no share")
ok("| cuBLAS | 2 |" in text, "products of cuBLAS have a share alone")
ok("multiply_kernel<128>: 8 warps" in text and "multiply_kernel<128>: 4 warps" in text and
   text.rstrip().splitlines()[-1].startswith("2 kinds of launches have fewer than 12 warps"), "both are named")
ok(run(RECORD)[0] == 0, "without --least it is a table alone")
ok(run(RECORD, "--least", "12", "--share", "0.9")[0] == 0, "what takes less of the step may have fewer")
good = "# why\noccupancy 80,90 | multiply_kernel<.*> | 4 | large tiles | of registers\n"
status, text = run(RECORD, "--least", "12", exceptions=good)
ok(status == 0 and ": large tiles | of registers" in text, "an exception gives its reason")
ok(run(RECORD, "--least", "12", exceptions=good.replace("| 4 |", "| 8 |"))[0] == 1, "and has a least of its own")
ok(run(RECORD, "--least", "12", exceptions=good.replace("80,90", "80"))[0] == 1, "and architectures")
status, text = run(RECORD, "--least", "12", exceptions=good + "occupancy 90 | pack | 4 | none\n")
ok(status == 1 and "the exception of pack is not needed" in text, "one that is not needed is an error")
status, text = run(RECORD, "--library")
ok(status == 0 and "| small, train | 0 of 1 of 2 | 0 of 1 of 1 | 2 of 2 of 2 |" in text, "what reaches cuBLAS")
status, text = run(RECORD, log=LOG.replace("_norm_", "_other_"))
ok(status == 1 and "_Z20mirt__cu_norm_kernel4args" in text, "a kernel that was not compiled is an error")
status, text = run(RECORD.replace("end\n", ""))
ok(status == 1 and "not a complete record" in text, "so is a record without its end")
predicted = RECORD.replace("small train", "small predict").split("kernel _Z24")[0] + "end\n"
ok(occupancy.modeled(occupancy.read(predicted, "record"), gpu_model.GPUS["h200"])[1] > 0,
   "a step without gradients has a model")
sys.exit(done())
