#!/usr/bin/env python3
"""broken.py [NAME...]: breaks one promise after another, each by a patch of this folder, and runs what is to catch it: it must fail.

A patch begins with what is promised and the commands that are to fail ("Promise: …", "Run: …"). It is applied to a copy of the last commit, in
build/broken, so the tree that you work in stays as it is. All of them (make broken): half an hour on two cores."""

import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "broken"


def git(*words, where=ROOT):
    subprocess.run(["git", *words], cwd=where, check=True, stdout=subprocess.DEVNULL)


def copy():
    """The last commit, as it is; what was built there stays."""
    if not (COPY / ".git").exists():
        git("clone", "-q", str(ROOT), str(COPY))
    git("fetch", "-q", "origin", "HEAD", where=COPY)
    git("checkout", "-q", "--force", "--detach", "FETCH_HEAD", where=COPY)
    git("clean", "-fdq", where=COPY)  # not what is ignored: build/


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
        if done.returncode != 0 and re.search(r"\[  FAILED  \]|The following tests FAILED", said):
            telling = re.search(r"PROMISE BROKEN.*|^E  .*|.*: Failure\n.*|\[  FAILED  \].*|^AssertionError: .*", said, re.M)
            return (telling.group(0) if telling else "a test failed").replace("\n", " ")[:160]
    return ""


def main():
    patches = sorted(p for p in pathlib.Path(__file__).parent.glob("*.patch") if not sys.argv[1:] or p.stem in sys.argv[1:])
    assert patches, f"no such patch: {sys.argv[1:]}"
    missed = []
    for patch in patches:
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
