#!/usr/bin/env python3
"""broken.py [--sim] [NAME...]: breaks one promise after another, each by a patch of this folder, and runs what is to catch it: it must fail.

A patch begins with what is promised and the commands that are to fail ("Promise: …", "Run: …"). It is applied to a copy of the last commit, in
build/broken, so the tree that you work in stays as it is. All of them (make broken): three quarters of an hour on two cores. --sim (make broken-sim): those
of sim/, each of which the simulation must find by the plan that stands there with most of its seeds, and which must break no rule in the tree as
it is, and come to every place that it names; a minute each."""

import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "broken"
ENOUGH = 0.8  # of a plan's seeds must show its patch: what hangs on one draw is gone with the next change


def git(*words, where=ROOT):
    subprocess.run(["git", *words], cwd=where, check=True, stdout=subprocess.DEVNULL)


def copy():
    """The last commit, as it is; what was built there stays."""
    if not (COPY / ".git").exists():
        git("clone", "-q", str(ROOT), str(COPY))
    git("fetch", "-q", "origin", "HEAD", where=COPY)
    git("checkout", "-q", "--force", "--detach", "FETCH_HEAD", where=COPY)
    git("clean", "-fdq", where=COPY)  # not what is ignored: build/


def broken_rule(said):
    """With how many seeds holdfast-sim says that a rule was broken, and the first; nothing when it did not play to its end, or it were too few."""
    told = re.findall(r"^seed=[^\n]*: RULES BROKEN;[^\n]*\n  (\w+: [^\n]*)", said, re.M)
    played = len(re.findall(r"^seed=[^\n]*: (?:RULES BROKEN|all is well);", said, re.M))
    if not re.search(r"^\d+ moved in .*; [1-9]\d* seeds with broken rules$", said, re.M) or len(told) < ENOUGH * played:
        return ""
    return f"{len(told)} of {played} seeds: {told[0]}"


def whole(patch):
    """Whether the simulation breaks no rule by the patch's plan before it is applied: else that it does afterwards says nothing."""
    for command in re.findall(r"^Run: (.*)$", patch.read_text(), re.M):
        done = subprocess.run(["bash", "-c", command], cwd=COPY, capture_output=True, text=True)
        if done.returncode != 0 or ": all is well;" not in done.stdout or "never came:" in done.stdout:
            return False
    return True


def caught(patch):
    """Whether a command of the patch failed as it should: because of a test, not because nothing could be built."""
    commands = re.findall(r"^Run: (.*)$", patch.read_text(), re.M)
    for command in commands:
        *builds, test = command.split(" && ")
        for build in builds:
            if subprocess.run(["bash", "-c", build], cwd=COPY, check=False, stdout=subprocess.DEVNULL).returncode:
                return ""
        done = subprocess.run(["bash", "-c", test], cwd=COPY, capture_output=True, text=True)
        said = done.stdout + done.stderr
        (ROOT / "build" / f"broken-{patch.stem}.log").write_text(said)
        if done.returncode == 1 and broken_rule(said):
            return broken_rule(said)[:160]
        if done.returncode != 0 and re.search(r"\[  FAILED  \]|The following tests FAILED", said):
            telling = re.search(r"PROMISE BROKEN.*|^ *E  .*|.*: Failure\n.*|\[  FAILED  \].*|^AssertionError: .*", said, re.M)
            return (telling.group(0) if telling else "a test failed").replace("\n", " ").strip()[:160]
    return ""


def main():
    names = [word for word in sys.argv[1:] if word != "--sim"]
    in_sim = "--sim" in sys.argv[1:]
    folder = pathlib.Path(__file__).parent / ("sim" if in_sim else "")
    patches = sorted(p for p in folder.glob("*.patch") if not names or p.stem in names)
    assert patches, f"no such patch: {names}"
    copy()
    # One build of the tree as it is for all of them.
    missed = [patch.stem for patch in patches if in_sim and not whole(patch)]
    for name in missed:
        print(f"{'NOT CAUGHT':18} {name}: its plan breaks a rule without it, too, or comes to another place, or cannot be played", flush=True)
    for patch in [patch for patch in patches if patch.stem not in missed]:
        begin = time.monotonic()
        copy()
        git("apply", str(patch), where=COPY)
        how = caught(patch)
        missed += [] if how else [patch.stem]
        print(f"{'red, as it must be' if how else 'NOT CAUGHT':18} {patch.stem} ({time.monotonic() - begin:.0f} s) {how}", flush=True)
    copy()
    print(f"{len(patches) - len(missed)} passed, {len(missed)} failed")
    return 1 if missed else 0


sys.exit(main())
