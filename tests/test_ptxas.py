#!/usr/bin/env python3
"""The table of compiled kernels, and that a hot one that spills is an error."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import ptxas
from tap import done, ok

# As ptxas prints it: properties of functions that a kernel calls follow its own.
LOG = """\
ptxas info    : 11 bytes gmem
ptxas info    : Compiling entry function '_Z11norm_kernelILi8EEvf' for 'sm_90'
ptxas info    : Function properties for _Z11norm_kernelILi8EEvf
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 2048 bytes smem, 40 bytes cumulative stack size
ptxas info    : Function properties for __internal_trig_reduction
    40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function '_Z10add_kernelPf' for 'sm_90'
ptxas info    : Function properties for _Z10add_kernelPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 0 barriers, 16+4 bytes smem
ptxas info    : Function properties for __internal_other
    0 bytes stack frame, 24 bytes spill stores, 24 bytes spill loads
"""


def run(log, *flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log")
        with open(path, "w") as file:
            file.write(log)
        result = subprocess.run([sys.executable, ptxas.__file__, path, *flags], capture_output=True, text=True)
        return result.returncode, result.stdout


def run_without_log():
    result = subprocess.run([sys.executable, ptxas.__file__, "/nowhere/log"], capture_output=True, text=True)
    return result.returncode, result.stderr


kernels = ptxas.read(LOG)
ok(kernels == {"_Z11norm_kernelILi8EEvf": {"registers": 168, "shared": 2048, "stack": 8, "stores": 12, "loads": 16},
               "_Z10add_kernelPf": {"registers": 20, "shared": 16, "stack": 0, "stores": 0, "loads": 0}},
   "spills belong to the function that was named last: %s" % kernels)
status, text = run(LOG, "--hot", "norm_kernel")
ok(status == 1 and "| 168 | 2048 | 12 | hot |" in text, "a hot kernel that spills is an error, and named")
status, text = run(LOG, "--hot", "add_kernel")
ok(status == 0 and "2 kernels, at most 168 registers, 1 that spill, 0 of them hot" in text, "another one is told")
ok("add_kernel" not in text and "add_kernel" in run(LOG, "--all")[1], "all are listed on request")
ok(run("nothing was compiled\n")[0] == 1, "a log without kernels is an error")
status, text = run_without_log()
ok(status == 1 and text.startswith("ptxas: ") and "/nowhere/log" in text, "a log that cannot be read is named")
sys.exit(done())
