#!/usr/bin/env python3
"""make skew: the release before (REF, a tag or commit) and this tree side by side on the local cluster. The counter is drained with each part
of Holdfast at the old release and the others at the new one, and the other way round; then while all of it is upgraded, and while it is
rolled back. tests/e2e/judge.py judges each drain. Ends with this tree installed."""

import argparse
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import faults  # noqa: E402
import kit  # noqa: E402
import releases  # noqa: E402

LIMIT = 120  # seconds until all is well after a drain

def build(ref):
    """The release that REF names, built with fault points in build/skew, and loaded into the nodes."""
    tree = ROOT / "build" / "skew"
    if tree.exists():
        kit.run("git", "-C", tree, "checkout", "--detach", "--force", ref)
    else:
        kit.run("git", "-C", ROOT, "worktree", "add", "--detach", "--force", tree, ref)
    subprocess.run([tree / "scripts" / "build.sh", "faults"], check=True)
    archive = kit.run(tree / "scripts" / "make-image.sh", tree / "build" / "faults", timeout=300).strip()
    return releases.Release(releases.load(archive), tree / "charts" / "holdfast")


def drain_while_rolled_out(witness, point, release):
    faults.drain_meanwhile(witness, point, lambda _: releases.roll_out(release), LIMIT)
    releases.await_rolled_out()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref", nargs="?", help="default: the newest tag that this tree comes after")
    ref = parser.parse_args().ref or kit.run("git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "HEAD^").strip()
    new, old = releases.Release(releases.installed()), build(ref)
    witness = kit.start_counter(kit.counter_yaml())
    witness.reset()
    witness.wait_progress()
    begin = time.monotonic()

    def step(what, do, *args):
        print(f"skew: {time.monotonic() - begin:.0f} s: {what}", flush=True)
        do(*args)
        if len(witness.report()) != 1:
            raise kit.Failure(f"{what}: a counter started cold: {witness.report()}")
        kit.assert_nothing_lost(witness.only())

    try:
        for part in releases.WORKLOADS:
            for odd, others in ((old, new), (new, old)):
                releases.roll_out(others)
                releases.await_rolled_out()
                releases.set_image(part, odd)
                releases.await_rolled_out()
                name = "old" if odd is old else "new"
                for turn in ("there", "and back"):
                    step(f"{name} {part}, drain {turn}", faults.plain_drain, witness, LIMIT)
        for point in ("ingest.segment_sent", "controller.claimed", "agent.before_restore_answer"):
            step(f"upgrade at {point}", drain_while_rolled_out, witness, point, new)
            step(f"roll back at {point}", drain_while_rolled_out, witness, point, old)
    finally:
        releases.roll_out(new)
        releases.await_rolled_out()
    print(f"skew: {ref} and this tree: nothing lost")


if __name__ == "__main__":
    try:
        main()
    except kit.Failure as failure:
        sys.exit(f"skew: {failure}")
