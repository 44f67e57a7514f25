#!/usr/bin/env python3
"""Warps per processor of the kernels that a step launches.

    MIRT_SIM_SKIP=1 MIRT_SIM_MEMORY=140e9 build/sim/launches resnet50 train >record
    nvcc -arch=sm_90 -Xptxas -v -c mirrortrain_cuda.cu -o cuda.o 2>log
    tools/occupancy.py record... --log log [--architecture 90] [--least 12 --share 0.01 [--exceptions FILE]]
    tools/occupancy.py record... --library

Prints a Markdown table for each record of launches, with registers and shared memory from ptxas's log: launches of one
kernel that give the same number of warps are one line. Waves are blocks divided by those that all processors hold at
once. A node's modeled seconds (gpu_model.py) belong to its main kernel: the model has no times for the kernels
that pack operands or add up partial sums. All figures are computed, not measured.

--least: the exit status is 1 if a line with more than --share of the modeled step has fewer warps and no exception
(ptxas.Exceptions), or if an exception is not needed. --library: instead, the convolutions that reach cuBLAS.
"""
import argparse
import re
import sys
from collections import namedtuple

import gpu_model
import ptxas

# Of a processor: registers, warps, blocks, bytes of shared memory; of a block: bytes that the driver reserves, and the
# most that it may have. `gpu`: in gpu_model.GPUS.
Processor = namedtuple("Processor", "registers warps blocks shared reserved most gpu")
PROCESSORS = {
    "80": Processor(65536, 64, 32, 164 << 10, 1 << 10, 164 << 10, "a100"),
    "90": Processor(65536, 64, 32, 228 << 10, 1 << 10, 228 << 10, "h200"),
}
PARTS, REGISTERS, SHARED = 4, 256, 128  # of a processor; what a part allocates for a warp at once; bytes for a block
# Kernels that prepare or finish what a node's main kernel does.
HELPER = re.compile(r"(mm_pack|mm_spread|multiply_splits|blas_round|blas_finish|blas_columns|column_sum|parts_add|sums|"
                    r"sums_images|sums_groups|norm_finish|reduce_finish|aggregate|copy)(_kernel)?(<.*)?")
COLUMNS = re.compile(r"(blas_columns|column_sum)\b.*")

Launch = namedtuple("Launch", "kernel blocks threads shared depth")  # kernel None: cuBLAS, a product of this k
Group = namedtuple("Group", "line launches")  # line None: after the last node
Record = namedtuple("Record", "model mode batch size lines groups shapes")


def read(text, path):
    """The record of one step, as tests/sim/launches.c prints it."""
    lines, groups, shapes, launches, head = [], [], {}, [], None
    for row in text.splitlines():
        word = row.split()
        if row.startswith("launches "):
            head = word[1:3] + [int(word[3]), int(word[4])]
        elif row.startswith("|"):
            lines.append(row[1:])
        elif row.startswith("kernel "):
            grid, block = ([int(n) for n in word[at + 1:at + 4]] for at in (word.index("GRID"), word.index("BLOCK")))
            launches.append(Launch(re.sub("^_ZL", "_Z", word[1]), grid[0] * grid[1] * grid[2],
                                   block[0] * block[1] * block[2], int(word[word.index("SHARED") + 1]), 0))
        elif row.startswith("product "):
            launches.append(Launch(None, 0, 0, 0, int(word[word.index("K") + 1])))
        elif row.startswith("node "):
            groups.append(Group(int(word[1]), launches))
            launches = []
            if "KERNEL" in word:
                image = word.index("IMAGE")
                shapes[int(word[1])] = ([int(n) for n in word[3:image]], gpu_model.tensor_of(
                    word[image + 1], [int(n) for n in word[image + 2:]]))
        elif row == "end" and head:
            return Record(*head, lines, groups + [Group(None, launches)], shapes)
    raise ValueError("%s is not a complete record of launches" % path)


def resident(processor, threads, registers, shared):
    """Blocks that a processor holds at once."""
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // REGISTERS) * REGISTERS
    bytes_taken = -(-(shared + processor.reserved) // SHARED) * SHARED
    if bytes_taken > processor.most or per_warp * -(-warps // PARTS) * PARTS > processor.registers:
        return 0
    limits = [processor.blocks, processor.warps // warps, processor.shared // bytes_taken]
    if registers:
        limits.append(processor.registers // PARTS // per_warp * PARTS // warps)
    return min(limits)


def node_of(record, line):
    return next(gpu_model.read(record.lines[line], record.batch), None)


def modeled(record, gpu):
    """{line: [(kind, seconds)]} of the record's nodes, with None after the last; and the seconds of all."""
    numbered = [(group.line, node_of(record, group.line)) for group in record.groups if group.line is not None]
    numbered = [(line, node) for line, node in numbered if node]
    parameters, shapes = 0, {}
    for line, node in numbered:
        if line in record.shapes and record.mode == "predict":
            shapes[node.name] = record.shapes[line]
        for out, space in zip(node.outs, re.findall(r"@(\w+)", record.lines[line])):
            if space == "gradient":
                parameters += out.bytes // 4
    model = gpu_model.step([node for _, node in numbered], gpu, parameters, shapes)
    seconds = {numbered[at][0]: parts for at, parts in model.kernels.items() if at is not None}
    seconds[None] = model.kernels.get(None, [])
    return seconds, model.total()


def of_weights(record, line, launch):
    """Whether a launch computes the gradient of weights, in a node that may have both gradients: it adds up pixels."""
    if launch.kernel:
        return "wgrad" in launch.kernel
    shape = record.shapes.get(line)
    pixels = shape[1].shape[0] * shape[1].shape[1] * shape[1].shape[2] if shape else launch.depth
    return launch.depth == pixels


def shares(record, group, parts, names, total):
    """The share of the modeled step of each of a node's launches."""
    result = [0.0] * len(group.launches)
    shown = ["cuBLAS" if launch.kernel is None else names[launch.kernel] for launch in group.launches]
    columns = [i for i, name in enumerate(shown) if COLUMNS.fullmatch(name)]
    main = [i for i, name in enumerate(shown) if not HELPER.fullmatch(name)] or list(range(len(shown)))
    weights = [i for i in main if of_weights(record, group.line, group.launches[i])]
    images = [i for i in main if i not in weights]
    for kind, seconds in parts:
        of = columns if kind == "bias gradient" else weights if "weight" in kind else images
        of = of or main
        for i in of:
            result[i] += seconds / total / len(of)
    return result


def rows(record, kernels, names, processor):
    """Launches of one kernel that give the same number of warps."""
    gpu = gpu_model.GPUS[processor.gpu]
    seconds, total = modeled(record, gpu)
    table = {}
    for group in record.groups:
        for launch, share in zip(group.launches, shares(record, group, seconds.get(group.line, []), names, total)):
            facts = kernels[launch.kernel] if launch.kernel else {"registers": 0, "shared": 0}
            shared = facts["shared"] + launch.shared
            blocks = resident(processor, launch.threads, facts["registers"], shared) if launch.kernel else 0
            warps = blocks * -(-launch.threads // 32)
            row = table.setdefault((launch.kernel, warps), {
                "name": names.get(launch.kernel, "cuBLAS"), "ours": bool(launch.kernel), "warps": warps,
                "registers": facts["registers"], "threads": [], "shared": [], "blocks": [], "waves": [],
                "share": 0.0, "most": 0.0})
            row["threads"].append(launch.threads)
            row["shared"].append(shared)
            row["blocks"].append(launch.blocks)
            row["waves"].append(launch.blocks / (blocks * gpu.processors) if blocks else 0)
            row["share"] += share
            row["most"] = max(row["most"], share)
    return sorted(table.values(), key=lambda row: (-row["share"], row["name"], row["warps"])), total


def between(values, form):
    low, high = form % min(values), form % max(values)
    return low if low == high else low + "-" + high


def print_table(record, table, total, architecture):
    print("\n%s, %s, batch %d of %d x %d, sm_%s: %d launches, modeled %.1f ms\n" %
          (record.model, record.mode, record.batch, record.size, record.size, architecture,
           sum(len(row["blocks"]) for row in table), total * 1e3))
    print("| kernel | launches | blocks | threads | registers | shared memory | warps per processor | waves "
          "| share of the step | largest |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in table:
        share = "%.1f %% | %.2f %%" % (100 * row["share"], 100 * row["most"]) if row["share"] else " | "
        if not row["ours"]:
            print("| cuBLAS | %d | | | | | | | %s |" % (len(row["blocks"]), share))
            continue
        print("| %s | %d | %s | %s | %d | %s | %d | %s | %s |" %
              (row["name"], len(row["blocks"]), between(row["blocks"], "%d"), between(row["threads"], "%d"),
               row["registers"], between(row["shared"], "%d"), row["warps"], between(row["waves"], "%.1f"), share))


def library(record):
    """{kind: [convolutions that cuBLAS computes, those it could, all]}: it could those of single pixels, stride 1."""
    kernels = {}
    for line, (kernel, image) in record.shapes.items():
        node = node_of(record, line)
        if node and node.kind == "conv2d":
            kernels[node.name] = kernel[:2] == [1, 1] and image.shape[1:3] == node.outs[0].shape[1:3]
    counts = {"conv2d": [0, 0, 0], "conv2d_input_grad": [0, 0, 0], "conv2d_weight_grad": [0, 0, 0]}
    for group in record.groups:
        node = node_of(record, group.line) if group.line is not None else None
        if not node or node.kind not in counts:
            continue
        products = [launch for launch in group.launches if launch.kernel is None]
        for kind in [node.kind] + ["conv2d_weight_grad"] * ("+weight" in node.flags):
            row = counts[kind]
            row[0] += any(node.kind != "conv2d_input_grad" or
                          of_weights(record, group.line, launch) == (kind != node.kind) for launch in products)
            row[1] += kernels.get(node.name, False)
            row[2] += 1
    return counts


def print_library(records):
    print("| convolutions by cuBLAS, of those it could compute, of all | forward | input gradients "
          "| weight gradients |")
    print("|---|---|---|---|")
    for record in records:
        counts = library(record)
        print("| %s, %s | %s |" % (record.model, record.mode, " | ".join(
            "%d of %d of %d" % tuple(counts[kind]) if counts[kind][2] else ""
            for kind in ("conv2d", "conv2d_input_grad", "conv2d_weight_grad"))))


def judge(record, table, args, exceptions):
    """Prints what has too few warps; returns how many of these have no exception."""
    wrong = 0
    for row in table:
        if not row["ours"] or row["warps"] >= args.least or row["share"] <= args.share:
            continue
        reason = exceptions.reason(row["name"], row["warps"])
        wrong += reason is None
        print("%s %s: %s: %d warps, %.1f %% of the step: %s" %
              (record.model, record.mode, row["name"], row["warps"], 100 * row["share"], reason or "too few"))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("record", nargs="+")
    parser.add_argument("--log", help="what nvcc -Xptxas -v printed")
    parser.add_argument("--architecture", choices=sorted(PROCESSORS), default="90")
    parser.add_argument("--least", type=int, default=0, help="warps per processor")
    parser.add_argument("--share", type=float, default=0.01, help="of the modeled step, from which on they are needed")
    parser.add_argument("--exceptions", help="a file: kernels that may have fewer")
    parser.add_argument("--library", action="store_true", help="which convolutions reach cuBLAS")
    args = parser.parse_args()
    try:
        records = []
        for path in args.record:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            records.append(read(text, path))
        if args.library:
            print_library(records)
            return 0
        if not args.log:
            parser.error("a record needs --log or --library")
        with open(args.log, encoding="utf-8", errors="replace") as file:
            kernels = ptxas.read(file.read())
        exceptions = ptxas.Exceptions(args.exceptions, "occupancy", args.architecture)
    except (OSError, ValueError) as error:
        print("occupancy: %s" % error, file=sys.stderr)
        return 1
    launched = {launch.kernel for record in records for group in record.groups for launch in group.launches}
    missing = sorted(kernel for kernel in launched - {None} if kernel not in kernels)
    if missing:
        print("occupancy: not in %s: %s" % (args.log, ", ".join(missing)), file=sys.stderr)
        return 1
    names = ptxas.demangled(sorted(launched - {None}))
    tables = [rows(record, kernels, names, PROCESSORS[args.architecture]) for record in records]
    for record, (table, total) in zip(records, tables):
        print_table(record, table, total, args.architecture)
    print(end="\n" if args.least else "")
    wrong = sum(judge(record, table, args, exceptions) for record, (table, _) in zip(records, tables))
    for kernel in exceptions.unused():
        print("the exception of %s is not needed" % kernel)
    if args.least:
        print("%d kinds of launches have fewer than %d warps, more than %g %% of the modeled step, and no exception" %
              (wrong, args.least, 100 * args.share))
    return 1 if wrong or exceptions.unused() else 0


if __name__ == "__main__":
    sys.exit(main())
