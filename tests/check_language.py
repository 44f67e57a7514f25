#!/usr/bin/env python3
"""Checks the language and layout of all published text.

    tests/check_language.py                TAP: compares what it finds with tests/language_counts.txt
    tests/check_language.py --list [KIND]  prints what it finds
    tests/check_language.py --update       lowers the recorded counts to what it finds

Kinds: `words`, phrases of tests/language_words.txt, also across the end of a line; `columns`, lines that are too wide,
except tables; `comments`, files that do not begin with a comment whose first sentence is short. A count may only fall:
finding more fails, and so does finding less, until the recorded count is lowered, and a recorded count above the one
before.
"""
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COUNTS, WORDS = "tests/language_counts.txt", "tests/language_words.txt"
FOLDERS = ("src", "cli", "examples", "tests", "tools", "docs")
FILES = ("README.md", "CHANGELOG.md", "SECURITY.md")
NOT_TEXT = ("tests/archive/", "tests/corpus/", "docs/pictures/", "docs/modules.md")
ENDINGS = (".c", ".h", ".inc", ".cu", ".cuh", ".cpp", ".py", ".sh", ".mk", ".md", ".txt")
WITHOUT_COMMENT = (".md", ".txt")
KINDS = ("words", "columns", "comments")
COLUMNS, FIRST_WORDS = 120, 15
SHOWN = 40
# A space of a phrase: spaces, or the end of a line with what surrounds it in a comment or a string.
BREAK = r'(?:[ \t]+|[ \t]*(?:\\n)?"?[ \t]*\n[ \t]*(?:\*|//|\#+|>|")?[ \t]*)'


def read(home, path):
    with open(os.path.join(home, path), "rb") as f:
        data = f.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def is_text(home, path):
    if path in (COUNTS, WORDS) or path.startswith(NOT_TEXT) or re.match(r"tests/golden/.*\.h$", path):
        return False
    return path.endswith(ENDINGS) or ("." not in os.path.basename(path) and read(home, path).startswith("#!"))


def files(home):
    found = [name for name in FILES if os.path.exists(os.path.join(home, name))]
    for folder in FOLDERS:
        for place, inner, names in os.walk(os.path.join(home, folder)):
            inner[:] = [name for name in inner if name != "__pycache__"]
            found += [os.path.relpath(os.path.join(place, name), home).replace(os.sep, "/") for name in names]
    return sorted(path for path in found if is_text(home, path))


def words(home):
    """(expression, what to write instead, example) of each phrase."""
    rows = []
    for line in read(home, WORDS).splitlines():
        if line and not line.startswith("# "):
            pattern, better, example = re.split(r"\s{2,}", line)
            rows.append((re.compile(pattern.replace(" ", BREAK), re.I), better, example))
    return rows


def bad_words(text, rows):
    starts = None
    for pattern, better, _ in rows:
        for match in pattern.finditer(text):
            if starts is None:
                starts = [m.start() for m in re.finditer(r"^", text, re.M)]
            line = text.count("\n", 0, match.start()) + 1
            yield line, '"%s": write %s' % (" ".join(match.group(0).split()), better)


def wide_lines(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        width = len(line.expandtabs(8))
        if width > COLUMNS and not (path.endswith(".md") and line.lstrip().startswith("|")):
            yield number, "%d columns: at most %d" % (width, COLUMNS)


def first_comment(path, text):
    """(line, text) of the comment that a file begins with; None: it begins with something else."""
    lines = text.split("\n")
    at = 1 if lines[0].startswith("#!") else 0
    if path.endswith((".c", ".h", ".inc", ".cu", ".cuh", ".cpp")):
        # Comments may follow includes, macros and, in examples, the command that compiles them.
        while at < len(lines) and re.match(r"\s*($|#|// (cc|c\+\+|g\+\+|nvcc)\b)", lines[at]):
            at += 2 if lines[at].endswith("\\") else 1
        rest = "\n".join(lines[at:])
        match = re.match(r"\s*/\*(.*?)\*/", rest, re.S) or re.match(r"\s*((?://[^\n]*\n)+)", rest)
        return (at + 1, re.sub(r"^\s*(\*|//) ?", "", match.group(1), flags=re.M)) if match else None
    rest = "\n".join(lines[at:])
    match = re.match(r'\s*r?"""(.*?)"""', rest, re.S) if path.endswith(".py") else None
    match = match or re.match(r"\s*((?:#[^\n]*\n)+)", rest)
    return (at + 1, re.sub(r"^# ?", "", match.group(1), flags=re.M)) if match else None


def bad_comments(path, text):
    if path.endswith(WITHOUT_COMMENT) or not text.strip():
        return
    comment = first_comment(path, text)
    if comment is None:
        yield 1, "no first comment: say in at most %d words what the file holds" % FIRST_WORDS
        return
    sentence = re.split(r"[.!?](?=\s|$)|\n[ \t]*\n", comment[1].strip())[0]
    count = sum(bool(re.search(r"\w", word)) for word in sentence.split())
    if count > FIRST_WORDS:
        message = "the first sentence has %d words: say in at most %d what the file holds"
        yield comment[0], message % (count, FIRST_WORDS)


@functools.lru_cache(None)
def findings_in(path, text, rows):
    return {"words": sorted(bad_words(text, rows)), "columns": list(wide_lines(path, text)),
            "comments": list(bad_comments(path, text))}


def findings(home):
    """Of each kind, (path, line, message)."""
    found, rows = {kind: [] for kind in KINDS}, tuple(words(HOME))
    for path in files(home):
        for kind, rest in findings_in(path, read(home, path), rows).items():
            found[kind] += [(path, line, message) for line, message in rest]
    return found


def counts_in(text):
    return {kind: int(count) for kind, count in re.findall(r"^(\w+) (\d+)$", text, re.M)}


def recorded(home):
    return counts_in(read(home, COUNTS))


def update(home):
    """Lowers the recorded counts; never raises one."""
    counts, found = recorded(home), findings(home)
    text = read(home, COUNTS)
    for kind in KINDS:
        text = re.sub(r"^%s \d+$" % kind, "%s %d" % (kind, min(counts[kind], len(found[kind]))), text, flags=re.M)
    with open(os.path.join(home, COUNTS), "w", encoding="utf-8") as f:
        f.write(text)


def git(home, *args):
    try:
        done = subprocess.run(["git", "-C", home] + list(args), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def recorded_before(home):
    """The counts before the latest change of the file, as far as git knows."""
    for commit in git(home, "log", "-2", "--format=%H", "--", COUNTS).split():
        text = git(home, "show", "%s:./%s" % (commit, COUNTS))
        if text and text != read(home, COUNTS):
            return counts_in(text)
    return {}


def added_lines(home):
    """The lines added since the counts were recorded, by path, as far as git knows; None: all of them."""
    base = git(home, "log", "-1", "--format=%H", "--", COUNTS).strip()
    if not base:
        return None
    added, path = {name: None for name in git(home, "ls-files", "--others", "--exclude-standard").splitlines()}, None
    for line in git(home, "diff", "-U0", "--no-color", "--no-ext-diff", base).splitlines():
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)
        if line.startswith("+++ "):
            path = line[6:]
        elif hunk:
            first, count = int(hunk.group(1)), int(hunk.group(2) or 1)
            added.setdefault(path, set()).update(range(first, first + count))
    return added


def is_new(finding, added):
    return finding[0] in added and (added[finding[0]] is None or finding[1] in added[finding[0]])


def judge(home):
    """Of each kind: whether its count is the recorded one, a sentence, and the findings to look at."""
    counts, before, found = recorded(home), recorded_before(home), findings(home)
    for kind in KINDS:
        have, most, look = len(found[kind]), counts.get(kind, 0), []
        text = "%s: %d, as recorded" % (kind, have)
        if have > most:
            added = added_lines(home)
            look = [f for f in found[kind] if added is None or is_new(f, added)] or found[kind]
            text = "%s: %d, only %d are recorded; remove the new ones" % (kind, have, most)
        elif have < most:
            text = "%s: %d, but %d are recorded; lower the count: tests/check_language.py --update" % (kind, have, most)
        raised = most > before.get(kind, most)
        if raised:
            text = "%s: the recorded count was raised from %d to %d; it may only fall" % (kind, before[kind], most)
        yield kind, have == most and not raised, text, look


def show(found):
    return ["%s:%d: %s" % finding for finding in found]


# Text that each kind finds once, and the line that it is found in.
PLANTS = {
    "words": ("/* A planted file. */\n\nint planted; /* the strategy is of no\n   use any more */\n",
              3, "write can no longer be used"),
    "columns": ("/* A planted file. */\nint planted[] = {%s0};\n" % ("0, " * COLUMNS),
                2, "columns: at most %d" % COLUMNS),
    "comments": ("#include <stdio.h>\n/* A planted file:%s. */\n" % (" word" * FIRST_WORDS),
                 2, "first sentence has %d words" % (FIRST_WORDS + 3)),
}


def check_itself():
    """In a copy of the text, each planted violation fails, and so does a count that could be lowered."""
    for pattern, better, example in words(HOME):
        tap.ok(pattern.search(example) and not pattern.search(better),
               "\"%s\" is found, \"%s\" is not" % (example, better))
    with tempfile.TemporaryDirectory() as copy:
        for path in files(HOME) + [COUNTS]:
            os.makedirs(os.path.dirname(os.path.join(copy, path)), exist_ok=True)
            shutil.copyfile(os.path.join(HOME, path), os.path.join(copy, path))
        found = findings(copy)
        exact = "".join("%s %d\n" % (kind, len(found[kind])) for kind in KINDS)

        def record(text):
            with open(os.path.join(copy, COUNTS), "w", encoding="utf-8") as f:
                f.write(text)

        record(exact)
        tap.ok(all(good for _, good, _, _ in judge(copy)), "a copy with the counts that it has passes")
        for kind, (text, line, message) in PLANTS.items():
            planted = os.path.join(copy, "src/planted.c")
            with open(planted, "w", encoding="utf-8") as f:
                f.write(text)
            failed = [(k, show(look)) for k, good, _, look in judge(copy) if not good]
            named = failed and [s for s in failed[0][1] if s.startswith("src/planted.c:%d: " % line) and message in s]
            tap.ok(len(failed) == 1 and failed[0][0] == kind and named,
                   "%s: a planted violation fails: %s" % (kind, named[0] if named else failed))
            update(copy)
            tap.ok(read(copy, COUNTS) == exact, "%s: --update does not raise the count" % kind)
            os.remove(planted)
            record(exact.replace("%s %d" % (kind, len(found[kind])), "%s %d" % (kind, len(found[kind]) + 1)))
            failed = [(k, text) for k, good, text, _ in judge(copy) if not good]
            tap.ok(len(failed) == 1 and failed[0][0] == kind and "--update" in failed[0][1],
                   "%s: a count that is too high fails" % kind)
            update(copy)
            tap.ok(read(copy, COUNTS) == exact, "%s: --update lowers it" % kind)
        # What is recorded may not be raised to make room for a finding.
        record(re.sub(r"words \d+", "words %d" % (len(found["words"]) - 1), exact))
        git(copy, "init", "-q")
        git(copy, "add", COUNTS)
        if not git(copy, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-m", "Record counts"):
            return tap.skip("there is no git to compare with the counts before")
        record(exact)
        failed = [(k, text) for k, good, text, _ in judge(copy) if not good]
        tap.ok(len(failed) == 1 and failed[0][0] == "words" and "raised" in failed[0][1],
               "a raised count fails: %s" % failed)


def main():
    if sys.argv[1:] == ["--update"]:
        return update(HOME)
    if sys.argv[1:2] == ["--list"] and set(sys.argv[2:]) <= set(KINDS):
        found = findings(HOME)
        for kind in sys.argv[2:] or KINDS:
            print("\n".join(show(found[kind])))
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    for _, good, text, look in judge(HOME):
        if not tap.ok(good, text):
            for line in show(look[:SHOWN]):
                print("# " + line)
            if len(look) > SHOWN:
                print("# and %d more: tests/check_language.py --list" % (len(look) - SHOWN))
    check_itself()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
