#!/usr/bin/env python3
"""Finds the modules of src/ and the dependencies between them.

    tools/modules.py           prints the counts, and what makes a dependency point back
    tools/modules.py --write   writes docs/modules.md and docs/pictures/modules.svg
    tools/modules.py --update  lowers the counts in tests/module_counts.txt to those found

A module is a folder of src/, the public API another one. Modules are ordered as in src/FILES, lowest first, and so are
the parts of a module: a .c file and the header of the same name. A depends on B where a file of A includes a file of B,
uses a function or a table that B defines, or declares one. A dependency on something higher points back. Macros of a
header count where they are expanded, except the rows of lists (MIRT__..._LIST): each user expands a part of a row.

Counts:
    modules     pairs of modules whose dependency points back
    references  pairs of a file and a name, or an included file, that make these
    train       pairs of parts of train/ whose dependency points back
    names       source files of src/ and cli/ that have the name of another one
"""
import collections
import os
import re
import sys
import textwrap

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The public API is below everything, and declares what all modules define.
API = "api"
# Have lists of their own; compiled apart from the rest, they see what stands before this line of src/FILES.
BESIDE, SPLIT = ("cuda", "mpi", "tcp"), "@IMPLEMENTATION"
SOURCE = (".c", ".h", ".inc", ".cu", ".cuh")
RECORD = "tests/module_counts.txt"
PURPOSE = {
    "api": "what users call",
    "base": "memory, errors, files, threads, clock",
    "kernels": "tensor arithmetic on CPU cores",
    "device": "the table that cores and GPUs fill",
    "group": "sums over processes",
    "formats": "JSON, safetensors, PNG, event files",
    "images": "decoding and resizing",
    "data": "data sets, their stages and workers",
    "graph": "recording and replaying programs",
    "ops": "what nodes compute, and their gradients",
    "passes": "fusion, storage and memory plan",
    "mirror": "strategies and the mirrored step",
    "nn": "layers, losses, metrics, optimizers, models",
    "function": "recorded functions and their results",
    "inspect": "timing, tracing, summaries, NaN search",
    "run": "a step on a batch: labels, update, failures",
    "checkpoint": "saving, loading and resuming",
    "servers": "parameter servers",
    "train": "fit, evaluate, predict and custom loops",
    "callbacks": "Keras's callbacks",
    "models": "ready-made networks",
    "cuda": "GPU kernels and the device table of GPUs",
    "mpi": "the engine that moves bytes between processes by MPI",
    "tcp": "the same by TCP",
}

Reference = collections.namedtuple("Reference", "file kind name target")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def plain(text):
    """The text without comments and without what strings contain."""
    token = r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
    return re.sub(token, lambda m: '""' if m.group(0)[0] == '"' else " ", text, flags=re.S)


DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.)*)", re.M | re.S)


def names_in(text):
    return set(re.findall(r"\b(?:mirt_|MIRT_)\w+", text))


def listed(src, name):
    return [line.strip() for line in read(os.path.join(src, name)).splitlines() if line.strip() and line[0] != "#"]


def module_of(path):
    return path.split("/")[0] if "/" in path else API


def bodies_removed(text):
    """What stands outside of braces, each block written {}; directives of the preprocessor are removed too."""
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.)*", "", text, flags=re.M | re.S)
    out, depth, at = [], 0, 0
    for match in re.finditer(r"[{}]", text):
        if depth == 0:
            out.append(text[at : match.start()])
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            out.append("{}")
        at = match.end()
    return "".join(out) + text[at:]


def declarations(text):
    """(names that the text defines, names that it only declares) of functions and tables."""
    defined, declared = set(), set()
    for piece in re.findall(r"[^;{}]*(?:\{\}|;)", bodies_removed(text)):
        if re.search(r"\b(typedef|enum)\b|\b(struct|union)\s+\w+\s*[{;]", piece):
            continue
        match = re.match(r"\s*(?:\w+[\s*]+)+(mirt_\w+)\s*(\(|\[|=|;)", piece)
        if match and not re.match(r"\s*static\b", piece):
            table = match.group(2) != "(" and "extern" not in piece
            (defined if piece.endswith("{}") or table else declared).add(match.group(1))
    return defined, declared - defined


class Sources:
    def __init__(self, src):
        self.src = src
        self.list = [path for path in listed(src, "FILES") if not re.match(r"base/\w+\.inc$|@", path)]
        self.text, self.uses, self.includes, self.macros = {}, {}, {}, {}
        self.home, self.declares = {}, collections.defaultdict(set)
        self.weak = set()  # names that may be missing: whoever uses them does not depend on them
        for folder, _, names in os.walk(src):
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), src)
                if path.endswith(SOURCE):
                    self.add(path)
        for path in self.uses:
            self.uses[path] = self.expanded(self.uses[path])
        self.order()

    def expanded(self, names):
        """With the names in the macros that are among them."""
        done, left = set(), list(names)
        while left:
            name = left.pop()
            if name not in done:
                done.add(name)
                left += self.macros.get(name, ())
        return done

    def add(self, path):
        raw = read(os.path.join(self.src, path))
        text = self.text[path] = plain(raw)
        here = os.path.dirname(path)
        self.weak |= set(re.findall(r"(\w+)\([^()]*\)\s*MIRT__WEAK", text))
        self.includes[path] = {
            os.path.normpath(os.path.join(here, name)) for name in re.findall(r'^\s*#\s*include "([^"]+)"', raw, re.M)
        }
        if path.endswith((".c", ".cu")):
            self.uses[path] = names_in(text)
        else:
            self.uses[path] = names_in(DEFINE.sub("", text))
            for name, body in DEFINE.findall(text):
                self.macros[name] = self.macros.get(name, set()) | (set() if name.endswith("_LIST") else names_in(body))
        if module_of(path) == API:
            return
        defined, declared = declarations(text)
        for name in defined:
            self.home.setdefault(name, path)
        for name in declared:
            self.declares[path].add(name)

    def order(self):
        """Modules by their first file after the part that backends see, if one is there; parts by their .c files."""
        lines = listed(self.src, "FILES")
        own = [module_of(path) for path in lines[lines.index(SPLIT) + 1 :] if path in self.text]
        shared = [module_of(path) for path in self.list if module_of(path) not in own]
        between = [module for module in dict.fromkeys(shared + own) if module not in (API, *BESIDE)]
        self.modules = [API] + between + list(BESIDE)
        place = {}
        for number, path in enumerate(self.list):
            part = os.path.splitext(path)[0]
            if part not in place or not path.endswith((".h", ".cuh")):
                place[part] = number
        self.place = place

    def references(self):
        """Everything in one file that another file provides."""
        for path in sorted(self.text):
            for target in sorted(self.includes[path]):
                if target in self.text:
                    yield Reference(path, "includes", os.path.basename(target), target)
            if module_of(path) == API:
                continue
            for name in sorted(self.uses[path]):
                target = self.home.get(name)
                if target and target != path and name not in self.weak:
                    yield Reference(path, "declares" if name in self.declares[path] else "uses", name, target)


class Graph:
    def __init__(self, home):
        self.sources = Sources(os.path.join(home, "src"))
        self.modules = self.sources.modules
        rank = {module: number for number, module in enumerate(self.modules)}
        place = self.sources.place
        self.arrows = collections.defaultdict(list)
        self.within = collections.defaultdict(list)
        for reference in self.sources.references():
            a, b = module_of(reference.file), module_of(reference.target)
            if a != b:
                self.arrows[a, b].append(reference)
            elif reference.kind == "uses":
                parts = tuple(os.path.splitext(path)[0] for path in (reference.file, reference.target))
                if parts[0] != parts[1] and parts[0] in place and parts[1] in place:
                    self.within[parts].append(reference)
        self.back = sorted(
            (pair for pair in self.arrows if rank[pair[1]] > rank[pair[0]]), key=lambda p: (rank[p[0]], rank[p[1]])
        )
        self.within_back = sorted(
            (pair for pair in self.within if place[pair[1]] > place[pair[0]]), key=lambda p: (place[p[0]], place[p[1]])
        )
        self.equal = equal_names(home)


def equal_names(home):
    """The source files that share a name, by name."""
    found = collections.defaultdict(list)
    for top in ("src", "cli"):
        for folder, _, names in os.walk(os.path.join(home, top)):
            for name in names:
                if name.endswith(SOURCE):
                    found[name].append(os.path.relpath(os.path.join(folder, name), home))
    return {name: sorted(paths) for name, paths in sorted(found.items()) if len(paths) > 1}


def because(references):
    """"graph.c uses `mirt__op_get`, includes ops.h", file by file."""
    lines = []
    for path in dict.fromkeys(reference.file for reference in references):
        done = []
        for kind in ("includes", "declares", "uses"):
            names = [r.name for r in references if r.file == path and r.kind == kind]
            if names:
                done.append("%s %s" % (kind, ", ".join("`%s`" % name for name in names)))
        lines.append("`%s` %s" % (path, "; ".join(done)))
    return lines


def table(graph):
    """A row per module: what it depends on."""
    width = max(map(len, graph.modules))
    lines = [" " * (width + 4) + " ".join("%2d" % number for number in range(1, len(graph.modules) + 1))]
    for number, module in enumerate(graph.modules, 1):
        marks = []
        for column, other in enumerate(graph.modules, 1):
            mark = "x" if column < number else "<"
            marks.append("--" if module == other else " " + mark if (module, other) in graph.arrows else " .")
        lines.append("%2d %-*s %s" % (number, width, module, " ".join(marks)))
    return "\n".join(lines)


def document(graph):
    lines = ["""# Modules

<!-- Written by tools/modules.py --write from the sources. -->

A module is a folder of `src/`; `api` is the public API. The modules are in the order of `src/FILES`, the lowest first.
A module depends on another one when it includes its files, uses its functions or tables, or declares them.

![The modules and their dependencies](pictures/modules.svg)

The picture omits a dependency that follows from others. The table has them all: a row depends on the columns marked
`x`, and on those marked `<`, which are higher than the row itself.

```text
%s
```
""" % table(graph)]
    def item(indent, text):
        space = " " * indent
        wrap = {"break_on_hyphens": False, "break_long_words": False}
        lines.append(textwrap.fill(text, 118, initial_indent=space + "- ", subsequent_indent=space + "  ", **wrap))

    lines.append("## Dependencies that point back\n\nBetween modules: %d.\n" % len(graph.back))
    for a, b in graph.back:
        item(0, "%s on %s" % (a, b))
        for line in because(graph.arrows[a, b]):
            item(2, line)
    inner = [pair for pair in graph.within_back if module_of(pair[0]) == "train"]
    total = sum(module_of(pair[0]) == "train" for pair in graph.within)
    lines.append("\nWithin `train/`: %d of %d.\n" % (len(inner), total))
    for a, b in inner:
        item(0, "`%s` on `%s`: %s" % (a, b, ", ".join("`%s`" % r.name for r in graph.within[a, b])))
    return "\n".join(lines) + "\n"


def reduced(graph):
    """The dependencies that point down, without those that follow from others."""
    rank = {module: number for number, module in enumerate(graph.modules)}
    down = {a: {y for x, y in graph.arrows if x == a and rank[y] < rank[a]} for a in graph.modules}
    below = {}
    for a in graph.modules:
        below[a] = down[a].union(*(below[b] for b in down[a]))
    return [(a, b) for a in graph.modules for b in down[a] if not any(b in below[c] for c in down[a])]


def picture(graph):
    """The modules, the highest first; dependencies that point down on the left, those that point back on the right."""
    count, step, width = len(graph.modules), 44, 110
    row = {module: count - 1 - number for number, module in enumerate(graph.modules)}
    arrows = [(a, b, -1, "#456", "down") for a, b in sorted(reduced(graph), key=lambda p: (row[p[0]], row[p[1]]))]
    arrows += [(a, b, 1, "#c22", "back") for a, b in graph.back]
    longest = max(abs(row[b] - row[a]) for a, b, *_ in arrows)
    middle = width // 2 + (24 + 22 * longest) * 3 // 4 + 20  # a curve reaches three quarters of its control points
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="14">'
        % (2 * middle, count * step + 50),
        "<title>The modules of src/ and their dependencies</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for color, name in (("#456", "down"), ("#c22", "back")):
        out.append(
            '<marker id="%s" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="%s"/></marker>' % (name, color)
        )
    for a, b, side, color, kind in arrows:
        y1, y2 = (20 + row[m] * step + 15 for m in (a, b))
        y1, y2 = (y1 + 5, y2 - 5) if y1 < y2 else (y1 - 5, y2 + 5)
        if kind == "down" and row[b] == row[a] + 1:
            line = (middle, y1 + 10, y2 - 10, color, kind)
            out.append('<path d="M%d %dV%d" stroke="%s" marker-end="url(#%s)"/>' % line)
            continue
        x = middle + side * width // 2
        bend = x + side * (24 + 22 * abs(row[b] - row[a]))
        out.append(
            '<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="%s" marker-end="url(#%s)"/>'
            % (x, y1, bend, y1, bend, y2, x, y2, color, kind)
        )
    for module in graph.modules:
        y = 20 + row[module] * step
        box = (middle - width // 2, y, width)
        out.append('<rect x="%d" y="%d" width="%d" height="30" rx="4" fill="#eef2f6" stroke="#456"/>' % box)
        out.append('<text x="%d" y="%d" text-anchor="middle">%s</text>' % (middle, y + 20, module))
        purpose = (middle + width // 2 + 14, y + 20, PURPOSE.get(module, ""))
        out.append('<text x="%d" y="%d" fill="#555" font-size="12">%s</text>' % purpose)
    y = count * step + 36
    legend = ((middle // 2, "#456", "depends on a lower module"), (3 * middle // 2, "#c22", "points back"))
    for x, color, text in legend:
        out.append('<text x="%d" y="%d" text-anchor="middle" fill="%s">%s</text>' % (x, y, color, text))
    return "\n".join(out + ["</svg>"]) + "\n"


def generated(graph):
    """The text of each generated file."""
    return {"docs/modules.md": document(graph), "docs/pictures/modules.svg": picture(graph)}


def recorded(home):
    return {kind: int(count) for kind, count in re.findall(r"^(\w+) (\d+)$", read(os.path.join(home, RECORD)), re.M)}


def update(home, counts):
    """Lowers the recorded counts; never raises one."""
    text = read(os.path.join(home, RECORD))
    for kind, count in recorded(home).items():
        text = re.sub(r"^%s \d+$" % kind, "%s %d" % (kind, min(count, counts[kind])), text, flags=re.M)
    with open(os.path.join(home, RECORD), "w", encoding="utf-8") as f:
        f.write(text)


def findings(graph):
    """Of each count, a line for everything counted."""
    references = [r for pair in graph.back for r in graph.arrows[pair]]
    return {
        "modules": ["%s on %s" % pair for pair in graph.back],
        "references": ["src/%s %s %s (src/%s)" % r for r in references],
        "train": [
            "src/%s on src/%s: %s" % (a, b, ", ".join(r.name for r in graph.within[a, b]))
            for a, b in graph.within_back
            if module_of(a) == "train"
        ],
        "names": [path for paths in graph.equal.values() for path in paths[1:]],
    }


def main():
    graph = Graph(HOME)
    if sys.argv[1:] == ["--write"]:
        for path, text in generated(graph).items():
            with open(os.path.join(HOME, path), "w", encoding="utf-8") as f:
                f.write(text)
    elif sys.argv[1:] == ["--update"]:
        update(HOME, {kind: len(found) for kind, found in findings(graph).items()})
    elif sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    else:
        print("modules, from the lowest: %s" % " ".join(graph.modules))
        for kind, found in findings(graph).items():
            print("\n%s: %d" % (kind, len(found)))
            for line in found:
                print("    " + line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
