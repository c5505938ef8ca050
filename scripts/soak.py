#!/usr/bin/env python3
"""make soak: drains for a long time, most of them with one of Holdfast's processes killed at a random named point, judged by the witness.

Writes bench/results/soak.json: {commit, moves, faults, lost, leaked, seconds, …}. Ends by itself after --minutes.
"""

import argparse
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import kit  # noqa: E402
import test_faults  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    random.seed(options.seed)
    start = time.monotonic()
    kit.uncordon_all()
    kit.disarm_faults()
    kit.kubectl("apply", "-f", str(kit.ROOT / "examples" / "counter.yaml"))
    kit.ready_pod("app=counter", limit=120)
    witness = kit.Witness()
    witness.reset()
    witness.wait_progress()
    moves = faults = 0
    by_point = {}
    while time.monotonic() - start < options.minutes * 60:
        point = random.choice((None, *test_faults.AGENT_POINTS, *test_faults.CONTROLLER_POINTS, *test_faults.STORE_POINTS))

        if point is None:
            test_faults.drain_through(witness, lambda node: None)
            kit.assert_nothing_lost(witness.only())
        elif point.startswith("agent."):
            test_faults.drain_with_fault(witness, point)
        else:
            test_faults.drain_with_fault(witness, point, lambda _: kit.SYSTEM_NODE)
        kit.uncordon_all()
        moves += 1
        faults += point is not None
        by_point[str(point)] = by_point.get(str(point), 0) + 1
        print(f"soak: {moves} moves, {faults} with a fault, {time.monotonic() - start:.0f} s; last: {point}", flush=True)
    report = witness.only()
    leaked = kit.wait("leftovers", lambda: [kit.leftovers()], limit=60)[0]
    result = {
        "commit": kit.run("git", "-C", str(kit.ROOT), "rev-parse", "HEAD").strip(), "seed": options.seed, "moves": moves, "faults": faults,
        "lost": report["lost"] + report["repeated"], "leaked": len(leaked), "seconds": round(time.monotonic() - start),
        "longest_gap_ms": report["longest_gap_ms"], "by_point": by_point,
    }
    path = kit.ROOT / "bench" / "results" / "soak.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 1 if result["lost"] or result["leaked"] else 0


if __name__ == "__main__":
    sys.exit(main())
