#!/usr/bin/env python3
"""test.py [--all] [--only REGEX] [unit|integration|e2e]...: the tests, in two rings, closed by ctest's lines for all of them.

Without words it is the gate (make test): unit, integration, and those end-to-end tests that tests/e2e/gate.txt names. --all: every test, and a
minute of fuzzing each target. With words: these parts, with every end-to-end test; --only: those of them whose name matches.

One run at a time. It makes its own clusters (slots 8 and 9), takes down what an earlier run left of them, and takes them down at its end,
also when it is interrupted; with CI=true it takes down every other local cluster first. What fails is tried once more, alone and on a new
cluster (at most five tests), unless a promise was broken; what passes only then is called flaky, above the closing lines.

HF_TEST_CLUSTERS=1: one cluster. HF_KEEP=1: the clusters stay. HF_SLOW=3: waits may take three times as long (default: measured)."""

import argparse
import contextlib
import ctypes
import datetime
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
_cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
STATE = pathlib.Path(os.environ.get("HF_STATE") or _cache / "holdfast-cluster")
GATE = _cache / "holdfast" / "gate"  # lock, children, evidence and flaky tests of the last run
SLOTS = ("8", "9")
MOST_SECOND_TRIES = 5
PR_SET_PDEATHSIG = 1
BROKEN = "PROMISE BROKEN"  # tests/e2e/kit.py says so
BUDGET_SECONDS = 15 * 60  # of the gate's tests, without builds, on a machine that is not slow
TELLING = re.compile(r": Failure$|^FAIL: |^ERROR: |^E  |^\[  FAILED|^FAILED |\bERROR\b|\bError: |SUMMARY: |Timeout|\*\*\*|not right: |fatal|Assertion")
BEGINS = re.compile(r": Failure$|^FAIL: |^ERROR: ")  # GoogleTest's and unittest's: what went wrong follows
MAX_LINES, MAX_COLUMNS, AFTER = 24, 240, 12
begin = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - begin:5.0f} s] {text}", flush=True)


class Case:
    """What came of one test."""

    def __init__(self, element):
        self.name, self.seconds = element.get("name"), float(element.get("time", 0))
        self.output = "".join(element.itertext())
        skipped = element.find("skipped")
        left_out = skipped is not None and (skipped.get("message") or "").startswith(("SKIP", "Disabled"))
        self.failed = element.get("status") == "fail" or (element.get("status") == "notrun" and not left_out)

    def telling_lines(self):
        """The lines that say what went wrong; the last ones where nothing says so."""
        lines = [line[:MAX_COLUMNS] for line in self.output.splitlines() if line.strip()]
        kept = set()
        for at, line in enumerate(lines):
            if TELLING.search(line):
                kept.update(range(at, min(len(lines), at + (AFTER if BEGINS.search(line) else 1))))
        return [lines[at] for at in sorted(kept) if not lines[at].startswith('{"ts"')][:MAX_LINES] or lines[-MAX_LINES:]

    def tell(self, how):
        """Prints what went wrong, and keeps all that the test said."""
        kept = GATE / "failed" / f"{self.name.replace('/', '_')}.{how}.txt"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(self.output)
        print(f"\n{self.name} failed ({how}, {self.seconds:.0f} s; all of it: {kept}):", *(f"  {line}" for line in self.telling_lines()), "", sep="\n", flush=True)


class Red(Exception):
    """Something before or between the tests went wrong."""


# --- processes ----------------------------------------------------------------------------------------------------------------------


def started_at(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


class Children:
    """Every process that is started leads a group of its own, whose number is written down: a run that was killed leaves them to the next."""

    def __init__(self):
        self.file, self.running = GATE / "children", set()

    def end_those_of_an_earlier_run(self):
        for line in self.file.read_text().splitlines() if self.file.exists() else []:
            pid, _, when = line.partition(" ")
            if when and started_at(pid) == when:
                say(f"an earlier run left process {pid}: ended")
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(pid), signal.SIGKILL)
        self.file.write_text("")

    def write(self):
        self.file.write_text("".join(f"{process.pid} {started_at(process.pid)}\n" for process in self.running))

    def start(self, *command, env=None, **options):
        process = subprocess.Popen([str(c) for c in command], start_new_session=True, stdin=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, **(env or {})}, **options)
        self.running.add(process)
        self.write()
        return process

    def wait(self, process, limit):
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill(process)
            status = 124
        self.running.discard(process)
        self.write()
        return status

    def run(self, *command, env=None, limit=3600, **options):
        return self.wait(self.start(*command, env=env, **options), limit)

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_all(self):
        for process in self.running:
            self.kill(process)
        self.running.clear()
        self.write()


# --- the machine --------------------------------------------------------------------------------------------------------------------


def how_slow():
    """How many times longer than on a quiet machine with two cores CPU, fsync and process starts take: 1 to 6."""
    block = b"x" * (1 << 20)

    def seconds(work):
        best = []
        for _ in range(3):
            start = time.monotonic()
            work()
            best.append(time.monotonic() - start)
        return sorted(best)[1]

    def sync():
        with tempfile.TemporaryFile(dir=GATE) as file:
            for _ in range(20):
                file.write(block[:4096])
                file.flush()
                os.fsync(file.fileno())

    ratios = {
        "CPU": seconds(lambda: [hashlib.blake2b(block).digest() for _ in range(100)]) / 0.11,
        "fsync": seconds(sync) / 0.1,
        "process starts": seconds(lambda: [subprocess.run(["/bin/true"], check=True) for _ in range(40)]) / 0.035,
    }
    slow = min(6.0, max(1.0, max(ratios.values())))
    say("this machine: " + ", ".join(f"{what} {ratio:.1f}" for what, ratio in ratios.items()) + f" times as long as a quiet one: limits times {slow:.1f}")
    return slow


def take_down(children, slot):
    children.run(ROOT / "tests/cluster/down.sh", env={"HF_SLOT": slot}, limit=180)


def running_slots():
    return sorted(path.name.removeprefix("cluster") for path in (STATE / "run").glob("cluster[0-9]"))


# --- the run ------------------------------------------------------------------------------------------------------------------------


class Run:
    def __init__(self, words):
        self.words = words
        self.ring = "all" if words.all or words.part else "gate"
        self.only = ["-R", words.only] if words.only else []
        self.children = Children()
        self.cases, self.flaky, self.failed, self.phases = [], [], [], []
        self.image, self.slow = "", 1.0
        self.slots = SLOTS[: max(1, int(os.environ.get("HF_TEST_CLUSTERS", "2")))]

    def wants(self, part):
        return not self.words.part or part in self.words.part

    @contextlib.contextmanager
    def phase(self, name, of_tests=True):
        start = time.monotonic()
        say(name)
        try:
            yield
        finally:
            self.phases.append((name, time.monotonic() - start, of_tests))

    def do(self, what, *command, env=None, limit=3600):
        if status := self.children.run(*command, env=env, limit=limit):
            raise Red(f"{what} failed (status {status})")

    def ctest(self, build, *options, env=None, quiet=False):
        """Runs ctest in build/BUILD; its cases. Red when it left no result."""
        folder = ROOT / "build" / build
        results = folder / "results.xml"
        results.unlink(missing_ok=True)
        log = GATE / "ctest.log"
        out = {"stdout": log.open("w"), "stderr": subprocess.STDOUT} if quiet else {}
        self.children.run("ctest", "--test-dir", folder, "--output-junit", results, "--test-output-size-failed", "8000000",
                          "--test-output-size-passed", "2000", *options, env=env, limit=5400, **out)
        try:
            return [Case(element) for element in xml.etree.ElementTree.parse(results).iter("testcase")]
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            raise Red(f"ctest did not come to its end: {error}" + (f"\n{log.read_text()[-3000:]}" if quiet else "")) from None

    def settle(self, cases, again):
        """Counts these cases; again(names) tries the failed ones once more: {name: Case}."""
        self.cases += cases
        failed = [case for case in cases if case.failed]
        broken = [case for case in failed if BROKEN in case.output]
        for case in failed:
            case.tell("first")
        tries = len(self.flaky) + len(self.failed) + len(failed)
        if failed and (broken or tries > MOST_SECOND_TRIES):
            say("a promise was broken: nothing is tried again" if broken else f"{tries} tests failed: too many to try them again")
            self.failed += failed
            return
        second = again([case.name for case in failed]) if failed else {}
        for case in failed:
            if case.name in second and not second[case.name].failed:
                self.flaky.append(case)
                continue
            self.failed.append(case)
            if case.name in second:
                second[case.name].tell("second")

    def others(self):
        """Unit and integration tests."""
        if not self.words.part:
            with self.phase("formats"):
                self.do("make format-check", "make", "-s", "format-check", limit=300)
        wanted = [part for part in ("unit", "integration") if self.wants(part)]
        if not wanted:
            return
        with self.phase("building the tests (AddressSanitizer)", of_tests=False):
            self.do("the build", ROOT / "scripts/build.sh", "test")
        env = {"HF_SLOW": f"{self.slow:.2f}", "HF_SEED": commit(), "HF_RING": self.ring}

        def again(names):
            say(f"once more, alone: {', '.join(names)}")
            pattern = "^(" + "|".join(re.escape(name) for name in names) + ")$"
            return {case.name: case for case in self.ctest("test", "-R", pattern, "-j1", env=env)}

        for part in wanted:
            jobs = (os.cpu_count() or 1) + 1  # some wait
            with self.phase(f"{part} tests"):
                self.settle(self.ctest("test", "-L", f"^{part}$", *self.only, f"-j{jobs}", env=env, quiet=part == "unit"), again)
                if self.failed:
                    raise Red(f"{part} tests failed")

    def installed(self, slots):
        """New clusters with the image in them."""
        starting = []
        for slot in slots:
            take_down(self.children, slot)
            env = {"HF_SLOT": slot, "HF_FAULT_POINTS": "1", "HF_IMAGE": self.image}
            starting.append((slot, self.children.start(ROOT / "scripts/install-local.sh", env=env, stdout=(GATE / f"install-{slot}.log").open("w"), stderr=subprocess.STDOUT)))
        for slot, process in starting:
            if self.children.wait(process, 900):
                raise Red(f"cluster {slot} could not be made:\n{(GATE / f'install-{slot}.log').read_text()[-4000:]}")

    def end_to_end(self):
        with self.phase("building what the clusters run", of_tests=False):
            self.do("the build", ROOT / "scripts/build.sh", "faults")
            archive = subprocess.run([ROOT / "scripts/make-image.sh", ROOT / "build/faults"], stdout=subprocess.PIPE, text=True, check=False)
            if archive.returncode:
                raise Red("the image could not be made")
            self.image = archive.stdout.strip()
        with self.phase(f"starting {len(self.slots)} clusters", of_tests=False):
            self.installed(self.slots)
        env = {"HF_INSTALLED": "1", "HF_IMAGE": self.image, "HF_SLOW": f"{self.slow:.2f}", "HF_EVIDENCE": str(GATE / "evidence"), "HF_RING": self.ring,
               "HF_SEED": commit()}

        def on(slots, *options):
            spec = ROOT / "build/faults/clusters.json"
            clusters = ", ".join('{"id": "%s", "slots": 1}' % slot for slot in slots)
            spec.write_text('{"version": {"major": 1, "minor": 0}, "local": [{"clusters": [' + clusters + "]}]}")
            return self.ctest("faults", "--resource-spec-file", spec, f"-j{len(slots)}", *options, env=env)

        def again(names):
            second = {}
            for name in names:
                say(f"once more, on a new cluster: {name}")
                self.installed(self.slots[:1])
                second |= {case.name: case for case in on(self.slots[:1], "-R", f"^{re.escape(name)}$")}
            return second

        with self.phase("end-to-end tests"):
            self.settle(on(self.slots, "-L", "^gate$" if self.ring == "gate" else "e2e", *self.only), again)

    def fuzz(self):
        with self.phase("fuzzing, a minute each target"):
            self.do("fuzzing", ROOT / "scripts/fuzz.sh", "60")

    def go(self):
        red = ""
        try:
            self.slow = float(os.environ.get("HF_SLOW") or how_slow())
            self.others()
            if self.wants("e2e"):
                self.end_to_end()
            if self.words.all:
                self.fuzz()
        except Red as error:
            red = str(error)
        finally:
            self.children.kill_all()
            if self.image and not os.environ.get("HF_KEEP"):
                for slot in self.slots:
                    take_down(self.children, slot)
        return self.closing(red)

    def closing(self, red):
        print("\nslowest tests:", *(f"  {case.seconds:6.1f} s  {case.name}" for case in sorted(self.cases, key=lambda c: -c.seconds)[:10]), sep="\n")
        print("phases:", *(f"  {seconds:6.0f} s  {name}" for name, seconds, _ in self.phases), sep="\n")
        if any(case.name.startswith("e2e.") for case in self.failed + self.flaky):
            print(f"\nwhat was on their clusters: {GATE / 'evidence'} (scripts/why.sh shows the last one)")
        self.keep_flaky()
        spent = sum(seconds for _, seconds, of_tests in self.phases if of_tests)
        budget = BUDGET_SECONDS * self.slow
        over = not self.words.part and not self.words.all and spent > budget
        if over:
            print(f"\nover its budget: the gate's tests took {spent:.0f} s of {budget:.0f} s. Move some from tests/e2e/gate.txt to make test-all")
        if red:
            print(f"\nnot done: {red}")
        share = 100 * (len(self.cases) - len(self.failed)) // max(len(self.cases), 1)
        print(f"\n{share}% tests passed, {len(self.failed)} tests failed out of {len(self.cases)}")
        if self.failed:
            print("\nThe following tests FAILED:", *(f"\t{case.name} (Failed)" for case in self.failed), sep="\n")
        print(f"\nTotal Test time (real) = {time.monotonic() - begin:.0f} sec", flush=True)
        return 1 if red or self.failed or not self.cases or (over and os.environ.get("CI") != "true") else 0

    def keep_flaky(self):
        for case in self.flaky:
            why = next((line.strip() for line in case.telling_lines() if line.startswith("E  ")), case.telling_lines()[-1] if case.telling_lines() else "")
            print(f"\nflaky: {case.name} ({why})")
            with (GATE / "flaky.txt").open("a") as file:
                print(f"{datetime.datetime.now():%Y-%m-%d %H:%M} {commit()[:12]} {case.name}: {why}", file=file)
            kept = GATE / "flaky" / case.name
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "output.txt").write_text(case.output)
            for found in (GATE / "evidence").glob(case.name.rpartition(".")[2] + "*"):
                shutil.copytree(found, kept / found.name, dirs_exist_ok=True)


def commit():
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every test, and a minute of fuzzing each target")
    parser.add_argument("--only", metavar="REGEX", help="of these parts the tests whose name matches")
    parser.add_argument("part", nargs="*", choices=["unit", "integration", "e2e", []], help="these parts only")
    words = parser.parse_args()
    GATE.mkdir(parents=True, exist_ok=True)
    lock = (GATE / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another run of the tests is under way: waiting for its end")
        fcntl.flock(lock, fcntl.LOCK_EX)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a make that is killed says nothing
    run = Run(words)
    run.children.end_those_of_an_earlier_run()
    for folder in ("evidence", "failed"):
        shutil.rmtree(GATE / folder, ignore_errors=True)
    for slot in running_slots():
        if slot in SLOTS or os.environ.get("CI") == "true":
            say(f"taking down cluster {slot}, which an earlier run left")
            take_down(run.children, slot)
    return run.go()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
