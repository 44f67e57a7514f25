#!/usr/bin/env python3
"""Modules of src/ depend on lower ones: dependencies that point back may only become fewer."""
import os
import shutil
import sys
import tempfile

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(HOME, "tests"), os.path.join(HOME, "tools")]
import modules
import tap

SHOWN = 40


def judge(home):
    """Of each count: whether it is the recorded one, a sentence, and what it counts."""
    most = modules.recorded(home)
    for kind, found in modules.findings(modules.Graph(home)).items():
        have, text = len(found), "%s: %d, as recorded" % (kind, len(found))
        if have > most[kind]:
            text = "%s: %d, only %d are recorded; remove the new ones" % (kind, have, most[kind])
        elif have < most[kind]:
            text = "%s: %d, but %d are recorded; run tools/modules.py --update" % (kind, have, most[kind])
        yield kind, have == most[kind], text, found


def append(path, text):
    with open(path, "a", encoding="utf-8") as f:
        f.write(text)


# A name, the counts that it raises, a file of src/ or cli/, the text appended to it, and a part of the line reported.
# base/crc.c depends on no higher module, and train/on_batch.c not on train/fit.c.
PLANTS = (
    (
        "an include",
        ("modules", "references"),
        "src/base/crc.c",
        '#include "../nn/model.h"\n',
        "src/base/crc.c includes model.h",
    ),
    (
        "a call",
        ("modules", "references"),
        "src/base/crc.c",
        "static bool mirt__planted(void) { return mirt__custom_named(0); }\n",
        "src/base/crc.c uses mirt__custom_named",
    ),
    (
        "a call of the public API",
        ("modules", "references"),
        "src/base/crc.c",
        "static void mirt__planted(void) { mirt_model_destroy(0); }\n",
        "src/base/crc.c uses mirt_model_destroy",
    ),
    (
        "a prototype",
        ("modules", "references"),
        "src/base/team.h",
        "MIRT__LIB bool\nmirt__custom_named(const char *name);\n",
        "src/base/team.h declares mirt__custom_named",
    ),
    (
        "a macro and its use",
        ("modules", "references"),
        "src/base/team.h",
        "#define MIRT__PLANTED(name) \\\n    mirt__custom_named(name)\n"
        "static bool mirt__planted(void) { return MIRT__PLANTED(0); }\n",
        "src/base/team.h uses mirt__custom_named",
    ),
    (
        "a table that a higher module defines",
        ("modules", "references"),
        "src/models/network.c",
        "const int mirt__planted_table[] = {1};\n",
        "src/base/crc.c uses mirt__planted_table",
    ),
    (
        "a call within train/",
        ("train",),
        "src/train/on_batch.c",
        "static void mirt__planted(void) { mirt__scheduled_rate(0, 0, 0, 0); }\n",
        "src/train/on_batch on src/train/fit: mirt__scheduled_rate",
    ),
    ("a name twice", ("names",), "src/models/crc.c", "/* Planted. */\n", "src/models/crc.c"),
    ("a name of src/ in cli/", ("names",), "cli/crc.c", "/* Planted. */\n", "src/base/crc.c"),
)
HARMLESS = (
    '/* #include "../nn/model.h" and mirt__custom_named(0); */\n'
    'static const char *mirt__planted(void) { return "mirt__custom_named"; }\n'
    "#define MIRT__PLANTED_LIST(X) X(mirt__custom_named)\n"
)


def check_plants():
    with tempfile.TemporaryDirectory() as copy:
        for folder in ("src", "cli"):
            shutil.copytree(os.path.join(HOME, folder), os.path.join(copy, folder))
        os.mkdir(os.path.join(copy, "tests"))
        have = {kind: len(found) for kind, found in modules.findings(modules.Graph(copy)).items()}

        def record(counts):
            with open(os.path.join(copy, modules.RECORD), "w", encoding="utf-8") as f:
                f.writelines("%s %d\n" % row for row in counts.items())

        record(have)
        append(os.path.join(copy, "src/base/team.h"), HARMLESS)
        tap.ok(all(good for _, good, _, _ in judge(copy)), "comments, strings and rows of lists depend on nothing")
        shutil.copyfile(os.path.join(HOME, "src/base/team.h"), os.path.join(copy, "src/base/team.h"))
        for name, kinds, path, text, want in PLANTS:
            touched = {path: text}
            if "table" in name:
                touched["src/base/crc.c"] = "static int mirt__planted(void) { return mirt__planted_table[0]; }\n"
            for where, added in touched.items():
                append(os.path.join(copy, where), added)
            failed = {kind: found for kind, good, _, found in judge(copy) if not good}
            named = [line for found in failed.values() for line in found if want in line]
            tap.ok(tuple(failed) == kinds and named, "%s fails: %s" % (name, named[0] if named else failed))
            for where in touched:
                original = os.path.join(HOME, where)
                if os.path.exists(original):
                    shutil.copyfile(original, os.path.join(copy, where))
                else:
                    os.remove(os.path.join(copy, where))
        for kind in have:
            record(dict(have, **{kind: have[kind] + 1}))
            failed = [(k, text) for k, good, text, _ in judge(copy) if not good]
            good = len(failed) == 1 and failed[0][0] == kind and "--update" in failed[0][1]
            tap.ok(good, kind + ": too high a count fails")
            modules.update(copy, have)
            tap.ok(modules.recorded(copy) == have, kind + ": --update lowers it")
            if have[kind]:
                record(dict(have, **{kind: have[kind] - 1}))
                modules.update(copy, have)
                tap.ok(modules.recorded(copy)[kind] == have[kind] - 1, kind + ": --update does not raise it")


def main():
    graph = modules.Graph(HOME)
    files = [path for path in graph.sources.list if path.endswith(".c")]
    tap.ok(len(graph.modules) > 10 and len(files) > 100, "%d modules, %d files" % (len(graph.modules), len(files)))
    tap.ok(all(path in graph.sources.text for path in graph.sources.list), "each file of src/FILES is read")
    calls = (("nn", "graph", "mirt__record"), ("run", "mirror", "mirt__on_devices"), ("ops", "base", "mirt__fail"))
    for a, b, name in calls:
        tap.ok(name in [r.name for r in graph.arrows[a, b]], "%s uses %s of %s" % (a, name, b))
    for kind, good, text, found in judge(HOME):
        if not tap.ok(good, text):
            for line in found[:SHOWN]:
                print("# " + line)
    for path, text in modules.generated(graph).items():
        tap.ok(modules.read(os.path.join(HOME, path)) == text, path + " is what tools/modules.py --write writes")
    check_plants()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
