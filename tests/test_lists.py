#!/usr/bin/env python3
"""Lists in the manual and docs/from-keras.md match the tables in src/.

test_lists.py --write writes them."""

import os
import re
import sys
import textwrap

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import keras_names
import tap

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MANUAL, DOCS = "src/manual.txt", "docs/from-keras.md"
BEGIN, END = "<!-- lists of tests/test_lists.py -->", "<!-- end of the lists -->"
MISSING, MISSING_END = "<!-- missing, by tests/test_lists.py -->", "<!-- end of what is missing -->"


def read(path):
    with open(os.path.join(HOME, path), encoding="utf-8") as f:
        return f.read()


def table(path, name):
    """The first words of the rows of a table."""
    body = re.search(r"\b%s\[\w*\] = \{(.*?)\n\};" % name, read(path), re.S).group(1)
    return re.findall(r'^\s*\{"(\w+)"', body, re.M)


def listed(path, name):
    """The second words of the rows of a list."""
    rows = re.search(r"#define %s\(X\)(.*?[^\\])\n" % name, read(path), re.S).group(1)
    return re.findall(r"^    X\(\w+, (\w+)", rows, re.M)


def enum(path, first, last):
    text = re.search(r"\b%s\b.*?\b%s\b" % (first, last), read(path), re.S).group(0)
    return re.findall(r"\bMIRT_[A-Z0-9_]+", text)[:-1]


def layers():
    """Names of Keras, in the order of the library's list."""
    listed = re.findall(r"X\((\w+)\)", read("src/nn/layers.h").split("#ifdef")[0])
    text = "".join(
        read("src/nn/" + name)
        for name in sorted(os.listdir(os.path.join(HOME, "src/nn")))
        if name.startswith("layers_")
    )
    names = dict(re.findall(r'\b(?:MIRT__\w+)\((\w+), "(\w+)"', text))
    names.update(
        (name, keras)
        for keras, name in re.findall(r'"([A-Z]\w+)", (random_\w+|center_crop|resizing)\b', text)
        if name in listed
    )
    for name in listed:
        if name not in names:
            found = re.findall(r'\(%s, [^;\n]*?"([A-Z]\w+)"' % name, text)
            names[name] = found[0] if found else "?" + name
    return [names[name] for name in listed if name != "input"]


def lists():
    """(what, names), in the order in which they are shown."""
    api = read("src/api/callbacks_api.h")
    policies = re.findall(
        r'"(\w+)"', re.search(r"mirt__policy_names\[.*?\] = \{(.*?)\};", read("src/nn/weights.c"), re.S).group(1)
    )
    converter = read("tools/convert_weights.py")
    converted = [
        s
        for kind in ("KERAS", "TORCH")
        for s in re.findall(r'"(\.[\w.]+)"', re.search(r"^%s = \((.*)\)" % kind, converter, re.M).group(1))
    ]
    return [
        ("layers", layers()),
        ("losses", listed("src/api/optimizers_api.h", "MIRT_LOSS_LIST")),
        ("metrics", table("src/nn/metrics_table.c", "mirt__metric_table")),
        ("optimizers", listed("src/api/optimizers_api.h", "MIRT_OPTIMIZER_LIST")),
        ("schedules", table("src/nn/schedules.c", "mirt__schedule_table")),
        ("callbacks", re.findall(r"MIRT_API mirt_callback \*mirt_(\w+)\(", api)),
        (
            "augmentations",
            [
                n[5:].lower()
                for n in enum("src/api/augment_api.h", "MIRT_RANDOM_FLIP = 0", "MIRT__AUGMENTATION_COUNT")
                if not n.startswith("MIRT__")
            ],
        ),
        ("ready-made networks", table("src/models/models.c", "mirt__application_table")),
        (
            "dtypes of tensors",
            [
                n[5:].lower()
                for n in re.findall(
                    r"MIRT_[A-Z0-9]+",
                    re.search(r"typedef enum mirt_dtype \{(.*?)MIRT__DTYPE", read("src/api/basics_api.h")).group(1),
                )
            ],
        ),
        ("dtype policies (mixed_float16: on GPUs)", policies),
        ("files of models: .safetensors; tools/convert_weights.py converts", converted),
    ]


def in_manual():
    return (
        "\n".join(
            textwrap.fill(
                "- %s: %s" % (what, ", ".join(names)),
                79,
                subsequent_indent="  ",
                break_on_hyphens=False,
                break_long_words=False,
            )
            for what, names in lists()
        )
        + "\n"
    )


def in_docs():
    return (
        "\n".join(
            textwrap.fill(
                "- %s: %s" % (what, ", ".join("`%s`" % n if " " not in n else n for n in names)),
                118,
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
            for what, names in lists()
        )
        + "\n"
    )


def missing():
    """What Keras's modules have and the library lacks."""
    ours = dict(lists())
    ours["activations"] = listed("src/kernels/elementwise.h", "MIRT__ACTIVATION_LIST")
    folder = os.path.join(HOME, "src/api")
    api = "".join(read("src/api/" + name) for name in sorted(os.listdir(folder)))
    lines = []
    for module, lack, other in keras_names.missing(ours, api):
        counts = ["%d for %s" % (count, kind) for kind, count in other.items()]
        text = ", ".join(["`%s`" % name for name in lack] or ["none"])
        lines.append("- %s: %s%s" % (module, text, "; and " + ", ".join(counts) if counts else ""))
    wrap = lambda line: textwrap.fill(line, 118, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(wrap(line) for line in lines) + "\n"


def parts(path, begin=BEGIN, end=END):
    """The text before its list, the list, and the text after it."""
    text = read(path)
    if path == MANUAL:
        head = "WHAT THERE IS\n=============\n"
        before, rest = text.split(head)
        return before + head, rest.split("\n\n", 1)[0] + "\n", "\n" + rest.split("\n\n", 1)[1]
    before, rest = text.split(begin + "\n")
    return before + begin + "\n", rest.split(end)[0], end + rest.split(end)[1]


def main():
    for what, names in lists():
        tap.ok(
            len(names) >= 3 and len(set(names)) == len(names) and not any(n.startswith("?") for n in names),
            "%s: %d in the tables %s" % (what, len(names), [n for n in names if n[0] == "?"] or ""),
        )
    docs = read(DOCS)
    unnamed = [a for a in enum("src/api/models_api.h", "MIRT_RELU", "MIRT__ACTIVATION_COUNT") if a not in docs]
    tap.ok(not unnamed, "%s names all activations: %s" % (DOCS, unnamed or "none is missing"))
    words = table("src/data/augment_stage.c", "mirt__augment_names")
    shown = re.search(r'" There are (flip.*?)"\n\s*:', read("cli/images.c"), re.S).group(1)
    unnamed = [word for word in words if not re.search(r"\b%s\b" % word, shown)]
    tap.ok(len(words) > 20 and not unnamed, "--augment names all augmentations: %s" % (unnamed or "none is missing"))
    for path, what, want, marks in (
        (MANUAL, "the lists of the code", in_manual(), ()),
        (DOCS, "the lists of the code", in_docs(), ()),
        (DOCS, "what Keras has and the code lacks", missing(), (MISSING, MISSING_END)),
    ):
        before, have, after = parts(path, *marks)
        if "--write" in sys.argv:
            with open(os.path.join(HOME, path), "w", encoding="utf-8") as f:
                f.write(before + want + after)
            continue
        wrong = [line for line in want.split("\n") if line not in have.split("\n")] + [
            line for line in have.split("\n") if line not in want.split("\n")
        ]
        tap.ok(
            have == want,
            "%s has %s%s"
            % (path, what, "; python3 tests/test_lists.py --write corrects it: " + " | ".join(wrong) if wrong else ""),
        )
    return tap.done()


sys.exit(main())
