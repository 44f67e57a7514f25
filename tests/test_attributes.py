#!/usr/bin/env python3
"""Attributes of a family of operations are read through MIRT__OF, which checks the family."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
GRAPH = os.path.join("src", "graph", "graph.h")
# The table of attributes in files takes their places, no values.
PLACES = re.compile(r"^#define MIRT__PLACE_\w+\(name\) own\.\w+\.name$")


def read(path):
    with open(os.path.join(HOME, path), encoding="utf-8") as f:
        return f.read()


def direct(text, families):
    """The lines of a source text that name a member of the union."""
    member = re.compile(r"(?:\.|->)own\.(?:%s)\b" % "|".join(families))
    return [line.strip() for line in text.split("\n") if member.search(line) and not PLACES.match(line)]


def main():
    members = re.search(r"union \{[^\n]*\n(.*?)\n    \} own;", read(GRAPH), re.S).group(1)
    families = re.findall(r"mirt__attrs_(\w+) \1;", members)
    tap.ok(len(families) > 5, "the families: %s" % ", ".join(families))
    tap.ok(direct("    if (node->a.own.norm.last_axes) return;\n", families), "a direct read is found")
    found = []
    for place, _, names in os.walk(os.path.join(HOME, "src")):
        for name in names:
            path = os.path.relpath(os.path.join(place, name), HOME)
            if path != GRAPH and name.endswith((".c", ".h", ".inc", ".cu", ".cuh")):
                found += ["%s: %s" % (path, line) for line in direct(read(path), families)]
    tap.ok(not found, "no other file names a member of the union%s" % "".join("\n#   " + line for line in found))
    return tap.done()


sys.exit(main())
