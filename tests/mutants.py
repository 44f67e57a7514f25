#!/usr/bin/env python3
"""Mutation test of a mirrored step: finds changes to the source that no test notices.

    tests/mutants.py [FILE...]          FILE: src/run/run.c, or run.c, of SUBJECTS below

Changes one operator, constant, condition, argument or statement at a time, compiles that file alone, links it before
build/mutants/parts.a, and runs the tests of the file, the fastest first, until one fails. A mutant that fails a test,
crashes or takes too long is killed. Those that do not compile, or whose object code is that of the source or of a
mutant before, are left out; so are changes to texts for users and to marks of the timeline (OBSERVERS). A line for
each file and its survivors; the last line is "N passed, N failed", where files below LEAST percent failed.

From the environment: SEED (0) draws LIMIT (0: all) mutants of each file; JOBS (2) processes; SMALL=0 runs tests with
all shapes; DEADLINE, a time of the day such as 14:30, stops it early; AGAIN, what an earlier run printed, takes only
its survivors. The working tree is only read. With NVIDIA's headers (tests/sim/fetch_headers) tests on simulated GPUs
run too.
"""
import concurrent.futures
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build/mutants")
SEED, LIMIT, JOBS = (int(os.environ.get(name) or default) for name, default in (("SEED", 0), ("LIMIT", 0), ("JOBS", 2)))
CC = os.environ.get("CC") or "cc"
FLAGS = (os.environ.get("MUTANT_FLAGS") or "").split()
AGAIN = os.environ.get("AGAIN")
LEAST = 80  # percent of mutants that must be killed

STEP = ["test_mirrored", "test_tree", "test_splits", "test_strategies", "test_functions", "test_function_losses",
        "test_batch_norm",
        "test_training", "test_optimizers", "test_not_finite", "test_function_misuse", "test_misuse", "test_suspended",
        "test_custom", "test_guards", "test_fit", "test_separate_devices", "test_profile", "test_watchdog"]
PLAN = ["test_tree", "test_splits", "test_mirrored", "test_strategies", "test_graphs", "test_functions",
        "test_function_losses", "test_batch_norm", "test_memory", "test_model"]
UPDATE = ["test_optimizers", "test_kernels", "test_splits", "test_mirrored", "test_training", "test_functions",
          "test_function_losses"]
SIMULATED = ["sim/test_not_finite", "sim/test_float16", "sim/test_ahead", "sim/test_training", "sim/test_corners"]
# File, the one that is compiled where it is not the file itself, functions (none: all), tests.
SUBJECTS = (
    ("src/group/tree.c", None, None, ["test_group"]),
    ("src/group/sum.c", None, None, ["test_group"]),
    ("src/group/gather.c", None, None, ["test_group", "test_together"]),
    ("src/train/together.c", None, None, ["test_together", "test_together_faults"]),
    ("src/mirror/replicas.c", None, None, PLAN + ["test_together"]),
    ("src/mirror/collective.c", None, None, PLAN),
    ("src/device/aggregate.c", None, None, PLAN),
    ("src/device/cores.c", None, r"mirt__core_(reduce|aggregate|squares)|mirt__squares_task", STEP + UPDATE),
    ("src/mirror/step.c", None, None, STEP + SIMULATED),
    ("src/mirror/meetings.c", None, None, STEP + SIMULATED),
    ("src/mirror/place.c", None, None, STEP + SIMULATED),
    ("src/mirror/transform.c", None, None, STEP + SIMULATED),
    ("src/run/rule.c", None, None, STEP + UPDATE + SIMULATED),
    ("src/train/on_batch.c", None, None, STEP),
    ("src/run/run.c", None, None, STEP + SIMULATED),
    ("src/nn/optimizers.c", None, None, UPDATE + ["test_save", "test_resume", "test_misuse", "test_archive"]),
    ("src/nn/directions.c", None, None, UPDATE),
    ("src/nn/weights.c", None, r"mirt__loss_scale_\w+|mirt__set_policy", ["test_optimizers"] + SIMULATED),
    ("src/ops/leaf.c", None, r"mirt__loss_weight_\w+", PLAN + ["test_training", "test_custom"] + SIMULATED),
    ("src/kernels/reference_elementwise.c", None,
     r"mirt__ref_(accumulate|gradient|update_by|average|sgd|adam|rmsprop|nadam|adagrad|adamax|lion|adadelta|"
     r"schedule_free|ftrl)", UPDATE),
    ("src/kernels/fast_gemm.c", None, r"mirt__range_task|mirt__fast_accumulate|mirt__fast_update", UPDATE),
    ("src/kernels/simd_text.inc", "src/kernels/simd.c",
     r"accumulate_range|sum_parts|shaped|gradient|averaged|sgd_\w+|adam_\w+|other_\w+|has_extras", UPDATE),
)
# Calls whose arguments tell somebody what happens, and have no part in it.
OBSERVERS = (r"\b(mirt__fail\w*|mirt__log|snprintf|mirt__text_add|mirt__step_mark|MIRT__TEST_POINT|MIRT__\w*ENTER"
             r"|MIRT__USE\w*|MIRT__CLAIM|__func__)\s*\(")

# Changes that make no difference: file, text of the line, what is changed into what, why.
EQUIVALENT = (
    ("fast_gemm.c", "MIRT__RANGE - 1) / MIRT__RANGE", (("-", "+"), ("1", "0")), "one more task, of no elements"),
    ("fast_gemm.c", "memset(&job, 0, sizeof job);", (("0", "1"), ("0, sizeof job", "sizeof job, 0")),
     "the fields that are read are set"),
    ("place.c", "for (int i = 0; i < step->result_port + step->num_results; i++) {", (("<", "<="),),
     "the port after the last one has no bytes"),
    ("place.c", "port->batched ? rows : places, port->bytes, &step->io_at[i]", (
        ("port->batched ? rows : places, port->bytes", "port->bytes, port->batched ? rows : places"),),
     "it is their product that counts"),
    ("place.c", "if (s->prefetched == step->owner) s->prefetched = NULL;", (
        ("s->prefetched == step->owner", "!(s->prefetched == step->owner)"),),
     "a feed knows too whether it sent a batch ahead, and a batch is sent again where nobody knows"),
    ("place.c", "memset(b, 0, sizeof *b);", (("0", "1"),), "the fields that are read are set"),
    ("place.c", "return end > begin ? end - begin : 0;", (("0", "1"),), "a place of no replica is not read"),
    ("replicas.c", "int slots = 1;", (("1", "0"),), "each device has a replica"),
    ("gather.c", "mirt__message send[2 * MIRT__GATHER_ARRAYS], receive[2 * MIRT__GATHER_ARRAYS];", (("2", "3"),),
     "room for more messages than there are"),
    ("tree.c", "for (int i = bottom; i < top; i++) p->total[i >= middle][p->held[i].process] = 0;", (("<", "<="),),
     "the totals of other processes are 0 already"),
    ("tree.c", "if (seat[h->process].center < 0) begin[h->process] = h->begin;", (("0", "1"),),
     "a center is -1 or the sum of two places, one of which is above 0"),
    ("tree.c", "if (sends > INT_MAX || receives > INT_MAX) {", (("||", "&&"),), "it takes 2^31 messages"),
    ("tree.c", "if (processes < 1 || processes > INT_MAX / 2", (("1", "0"),), "then `process` is not below it"),
)


# >>the text of a function

def blank(text, pattern, flags=0):
    """The text with what matches in spaces: places stay."""
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=flags)


def closing(text, at):
    """The place of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return len(text) - 1


def code_of(text):
    """The text without comments, strings, directives, and what observers are told."""
    code = blank(text, r'/\*.*?\*/|//[^\n]*|"(\\.|[^"\\\n])*"|\'(\\.|[^\'\\\n])*\'', re.S)
    code = blank(code, r"(?m)^[ \t]*#(.*\\\n)*.*$")
    for call in list(re.finditer(OBSERVERS, code)):
        end = closing(code, call.end() - 1) + 1
        code = code[:call.start()] + re.sub(r"[^\n]", " ", code[call.start():end]) + code[end:]
    return code


def bodies(code, names):
    """(begin, end) of the functions whose name matches."""
    found = []
    for head in re.finditer(r"\)[ \t\n]*\{", code):
        begin = head.end() - 1
        # The parameters' bracket, the name before it, in column 0 the beginning of the line.
        depth, i = 0, head.start()
        while i >= 0:
            depth += (code[i] == ")") - (code[i] == "(")
            if depth == 0:
                break
            i -= 1
        line = code[code.rfind("\n", 0, i) + 1:i]
        name = re.search(r"(\w+)\)?\s*$", line)
        if not name or not line or line[0] in " \t}":
            continue
        if names is None or re.fullmatch(names, name.group(1)):
            found.append((begin, closing(code, begin)))
    return found


# >>mutations: (begin, end, what stands there instead)

OPERATOR = re.compile(r"(?<=[\s\w)\]])(<=|>=|==|!=|<|>|&&|\|\||\+=|-=|\+|-)(?=[\s\w(!&*-])")
COMPARE = {"<": ["<=", ">="], ">": [">=", "<="], "<=": ["<", ">"], ">=": [">", "<"], "==": ["!="], "!=": ["=="]}


# Where both sides are equal, the larger one is either: if (a > b) b = a; a > b ? a : b
LARGER = re.compile(r"\(?((?:[\w.]|->)[\w.\[\]>+ -]*?) (?:<|>|<=|>=) ([\w.\[\]>-]+)"
                    r"(?=\) \2 = \1;|\) \1 = \2;| \? \1 : \2\b| \? \2 : \1\b)")


def no_difference(code, at, other):
    """Whether the comparison at `at` only chooses the larger or smaller of two numbers, and keeps doing so."""
    if code[at] != other[0]:
        return False
    begin = code.rfind("\n", 0, at)
    line = code[begin + 1:code.find("\n", at)]
    return any(m.start() < at - begin - 1 < m.end() for m in LARGER.finditer(line))


def operators(code, begin, end):
    for m in OPERATOR.finditer(code, begin, end):
        op = m.group(1)
        before = code[begin:m.start()].rstrip()
        if op in COMPARE:
            if code[m.start() - 1] == " " and code[m.end()] == " ":
                for other in COMPARE[op]:
                    if no_difference(code, m.start(1), other):
                        continue
                    yield m.start(1), m.end(1), other
        elif op in ("&&", "||"):
            yield m.start(1), m.end(1), "||" if op == "&&" else "&&"
        elif op in ("+=", "-="):
            yield m.start(1), m.end(1), "-=" if op == "+=" else "+="
        elif re.search(r"[\w)\]]$", before) and not re.search(r"\breturn$", before) and code[m.end()] == " ":
            yield m.start(1), m.end(1), "-" if op == "+" else "+"


def constants(code, begin, end):
    for m in re.compile(r"(?<![\w.])(\d+)(\.\d+f?)?(?![\w.])").finditer(code, begin, end):
        whole, rest = int(m.group(1)), m.group(2) or ""
        yield m.start(), m.end(), "%d%s" % (whole + 1, rest)
        if whole > 0:
            yield m.start(), m.end(), "%d%s" % (whole - 1, rest)


def conditions(code, begin, end):
    for m in re.compile(r"\b(if|while) \(").finditer(code, begin, end):
        close = closing(code, m.end() - 1)
        yield m.end(), close, "!(" + "\0" + ")"  # \0: what stood there


EXPRESSION = re.compile(r"[\w*(][\w\s>.\-\[\]*&()+,]*?[^=!<>]=[^=]|[\w>.\-\[\]]+\("
                        r"|[\w>.\-\[\]]+(\+\+|--)$|break$|continue$")
DECLARATION = re.compile(r"(return|goto|else|do)\b|(const |struct |static )|[\w]+ \**\w+(\[\w*\])?( =|,|$)")


def statements(code, begin, end):
    start = begin + 1
    for m in re.compile(r"[;{}]").finditer(code, begin + 1, end):
        if m.group() != ";":
            start = m.end()
            continue
        text = code[start:m.start()]
        if text.count("(") != text.count(")"):  # inside the head of a for
            continue
        lead = len(text) - len(text.lstrip())
        head = re.match(r"\s*(?:else\s+)?(?:(?:if|for|while|switch)\s*\(|else\b|do\b|case\b[^:]*:|default:)?", text)
        at = start + lead
        while head and re.match(r"(if|for|while)\s*\(", code[at:]):
            at = closing(code, code.index("(", at)) + 1
            at += len(code[at:m.start()]) - len(code[at:m.start()].lstrip())
        if code[at:].startswith("else "):
            at += 5
            while re.match(r"(if|for|while)\s*\(", code[at:]):
                at = closing(code, code.index("(", at)) + 1
                at += len(code[at:m.start()]) - len(code[at:m.start()].lstrip())
        text = code[at:m.start()]
        if EXPRESSION.match(text) and not DECLARATION.match(text):
            yield at, m.start(), ""
        start = m.end()


def arguments(code, begin, end):
    for m in re.compile(r"(?<!if )(?<!for )\b(\w+)\(").finditer(code, begin, end):
        if m.group(1) in ("if", "for", "while", "sizeof", "switch", "return"):
            continue
        close, parts, depth, start = closing(code, m.end() - 1), [], 0, m.end()
        for i in range(m.end(), close):
            depth += (code[i] in "([{") - (code[i] in ")]}")
            if code[i] == "," and depth == 0:
                parts.append((start, i))
                start = i + 1
        parts.append((start, close))
        for (a, b), (c, d) in zip(parts, parts[1:]):
            one, two = code[a:b].strip(), code[c:d].strip()
            if one and two and one != two:
                yield a, d, "\1%d:%d:%d" % (b - a, c - a, d - a)


def mutants_of(path, names):
    with open(os.path.join(ROOT, path)) as file:
        text = file.read()
    code, found = code_of(text), []
    for begin, end in bodies(code, names):
        for kind in (operators, constants, conditions, statements, arguments):
            for at, to, new in kind(code, begin, end):
                old = text[at:to]
                if new.startswith("\1"):
                    b, c, d = (int(x) for x in new[1:].split(":"))
                    new = old[c:d].strip() + ", " + old[:b].strip()
                    new = (" " if old[0] == " " else "") + new
                new = new.replace("\0", old)
                if equivalent(path, text, (at, to, new)):
                    continue
                if (at, to, new) not in [f[:3] for f in found]:
                    found.append((at, to, new))
    return text, sorted(found)


def line_of(text, at, to):
    return " ".join(text[text.rfind("\n", 0, at) + 1:text.find("\n", to)].split())


def equivalent(path, text, mutant):
    at, to, new = mutant
    line, change = line_of(text, at, to), (text[at:to].strip(), new.strip())
    return any(path.endswith("/" + file) and part in line and change in changes
               for file, part, changes, _ in EQUIVALENT)


def described(path, text, mutant):
    at, to, new = mutant
    begin, was, line = text.rfind("\n", 0, at) + 1, " ".join(text[at:to].split()), line_of(text, at, to)
    change = "removed `%s`" % was if not new else "`%s` -> `%s`" % (was, " ".join(new.split()))
    return "%s:%d:%d: %s in: %s" % (path, text.count("\n", 0, at) + 1, at - begin + 1, change, line[:150])


# >>compiling and running

def call(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def compile_mutant(unit, path, text, mutant, home):
    """(object, its digest), or None where it does not compile; mutant None: as it is."""
    place = tempfile.mkdtemp(dir=home)
    with open(os.path.join(place, os.path.basename(path)), "w") as file:
        file.write(text if mutant is None else text[:mutant[0]] + mutant[2] + text[mutant[1]:])
    if unit != path:
        shutil.copy(os.path.join(ROOT, unit), place)
    out = os.path.join(place, "mutant.o")
    made = call([CC] + FLAGS + ["-Werror=int-conversion", "-Werror=incompatible-pointer-types", "-iquote",
                os.path.dirname(os.path.join(ROOT, unit)), "-include", os.path.join(ROOT, "tests/hooks.h"), "-c",
                os.path.basename(unit), "-o", out], cwd=place)
    if made.returncode:
        shutil.rmtree(place)
        return None
    with open(out, "rb") as file:
        return out, hashlib.sha256(file.read()).hexdigest()


def link(test, objects, out):
    if test.startswith("sim/"):
        name = test[4:]
        parts = [os.path.join(ROOT, "build/sim", p) for p in ("c/%s.o" % name, "cuda.o")]
        tail = [os.path.join(ROOT, "build/sim/simulator.a"), os.path.join(BUILD, "parts.a"), "-rdynamic", "-ldl"]
        made = call(["g++"] + parts + objects + tail + ["-o", out, "-lm", "-lpthread"])
    else:
        made = call([CC, os.path.join(BUILD, test + ".o")] + objects +
                    [os.path.join(BUILD, "parts.a"), "-o", out, "-lm", "-lpthread"])
    if made.returncode:
        sys.exit("mutants: %s does not link:\n%s" % (test, made.stdout[-2000:]))


def limits(cpu):
    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    return apply


def run_test(test, program, home, cpu, wall):
    """Whether it passes, and its seconds of processor time."""
    place = tempfile.mkdtemp(dir=home)
    environment = dict(os.environ, TMPDIR=place)
    if os.environ.get("SMALL") != "0":
        environment["MIRT_TEST_SMALL"] = "1"
    if test.startswith("sim/"):
        environment.update(MIRT_SIM_SEED="1", MIRT_SIM_DEVICES="4", MIRT_TEST_ALIGNED="1")
    with open(os.path.join(place, "said"), "w+b") as said:
        child = subprocess.Popen([program], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=said,
                                 stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=limits(int(cpu)))
        began, used = time.time(), None
        while used is None and time.time() - began < wall:
            time.sleep(0.01)
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                used = usage.ru_utime + usage.ru_stime
                child.returncode = status
        try:
            os.killpg(child.pid, signal.SIGKILL)  # also what it started
        except ProcessLookupError:
            pass
        if used is None:
            child.wait()
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    shutil.rmtree(place, ignore_errors=True)
    plan = re.search(r"(?m)^1\.\.(\d+)$", text)
    return (used is not None and child.returncode == 0 and plan is not None and
            int(plan.group(1)) == len(re.findall(r"(?m)^ok ", text))), used or 0


class Tests:
    """The tests of the source as it is: those that exist and pass, with their processor time and limits."""

    def __init__(self, names, home, pool):
        self.seconds = {}
        names = sorted(names)
        have = [n for n in names if os.path.exists(os.path.join(ROOT, "tests", n + ".c")) and not n.startswith("sim/")]
        sim = [n for n in names if n.startswith("sim/")]
        wanted = ["build/mutants/parts.a"] + ["build/mutants/%s.o" % n for n in have]
        made = call(["make", "-j%d" % JOBS] + wanted, cwd=ROOT)
        if made.returncode:
            sys.exit("mutants: the tests do not compile:\n" + made.stdout[-3000:])
        if sim and "skipped" not in call(["make", "-n", "sim-test"], cwd=ROOT).stdout.split("\n")[0]:
            wanted = ["build/sim/cuda.o", "build/sim/simulator.a"] + ["build/sim/c/%s.o" % n[4:] for n in sim]
            if call(["make", "-j%d" % JOBS] + wanted, cwd=ROOT).returncode == 0:
                have += sim
        for name, (passes, seconds) in zip(have, pool.map(lambda n: self.baseline(n, home), have)):
            if not passes:
                print("# %s fails without a mutant: not used" % name)
                continue
            self.seconds[name] = seconds
        speeds = ["%s %.1f" % (n, self.seconds[n]) for n in self.of(have)]
        print("# tests, by their seconds: " + ", ".join(speeds), flush=True)

    def baseline(self, name, home):
        out = os.path.join(home, name.replace("/", "_"))
        link(name, [], out)
        result = run_test(name, out, home, 600, 1200)
        os.remove(out)
        return result

    def of(self, names):
        return sorted((n for n in set(names) if n in self.seconds), key=lambda n: (round(self.seconds[n], 1), n))

    def kills(self, names, compiled, home):
        """The name of the test that fails, or None."""
        program = compiled + ".program"
        for name in self.of(names):
            link(name, [compiled], program)
            own = self.seconds[name]
            passes, _ = run_test(name, program, home, 3 * own + 5, 60 * own + 60)
            os.remove(program)
            if not passes:
                return name
        return None


def survived():
    with open(AGAIN) as file:
        return {line.split("survives: ")[1].rstrip("\n") for line in file if "survives: " in line}


def late():
    return "DEADLINE" in os.environ and time.strftime("%H:%M") >= os.environ["DEADLINE"]


def check_file(subject, tests, home, pool):
    path, unit, names, wanted = subject
    unit = unit or path
    text, all_mutants = mutants_of(path, names)
    order = [m for m in all_mutants if not AGAIN or described(path, text, m) in survived()]
    random.Random("%d %s" % (SEED, path)).shuffle(order)
    base = compile_mutant(unit, path, text, None, home)
    if not base or not all_mutants:
        sys.exit("mutants: %s does not compile, or has no function of its subject" % path)
    if not tests.of(wanted):
        print("%-38s no test of it can run here" % path)
        return True
    # In their order, so that which ones are left out does not depend on what is faster.
    seen, taken, alike, broken = {base[1]}, [], 0, 0
    for at in range(0, len(order), 4 * JOBS):
        if (LIMIT and len(taken) >= LIMIT) or late():
            break
        chunk = order[at:at + 4 * JOBS]
        for mutant, made in zip(chunk, pool.map(lambda m: compile_mutant(unit, path, text, m, home), chunk)):
            if not made:
                broken += 1
            elif made[1] in seen or (LIMIT and len(taken) >= LIMIT):
                alike += made[1] in seen
                shutil.rmtree(os.path.dirname(made[0]))
            else:
                seen.add(made[1])
                taken.append((mutant, made[0]))

    def run(one):
        killer = "" if late() else tests.kills(wanted, one[1], home)
        shutil.rmtree(os.path.dirname(one[1]))
        return killer

    results = list(zip([t[0] for t in taken], pool.map(run, taken)))
    ran = [r for r in results if r[1] != ""]
    survivors = sorted(m for m, killer in ran if killer is None)
    killed = len(ran) - len(survivors)
    good = bool(ran) and 100 * killed >= LEAST * len(ran)
    print("%-38s %4d of %4d killed, %5.1f %%   (%d places; %d the same code, %d do not compile)%s" %
          (path, killed, len(ran), 100.0 * killed / max(1, len(ran)), len(all_mutants), alike, broken,
           "" if good else "   BELOW %d %%" % LEAST))
    for mutant in survivors:
        print("    survives: " + described(path, text, mutant), flush=True)
    return good


def main():
    named = {a.split("/")[-1] for a in sys.argv[1:]}
    chosen = [s for s in SUBJECTS if not named or os.path.basename(s[0]) in named]
    if not chosen:
        sys.exit("mutants: none of these files is a subject")
    os.chdir(ROOT)
    home = tempfile.mkdtemp(prefix="mutants-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    passed = 0
    pool = concurrent.futures.ThreadPoolExecutor(JOBS)
    try:
        tests = Tests({t for s in chosen for t in s[3]}, home, pool)
        for subject in chosen:
            passed += check_file(subject, tests, home, pool)
    finally:
        pool.shutdown(cancel_futures=True)
        shutil.rmtree(home, ignore_errors=True)
    print("%d passed, %d failed" % (passed, len(chosen) - passed))
    return passed < len(chosen)


if __name__ == "__main__":
    sys.exit(main())
