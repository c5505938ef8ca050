#!/usr/bin/env python3
"""make demo: drains the node under a counting process, back and forth, and shows what happened. The witness pod decides, not the log."""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import kit  # noqa: E402

DRAINS = 3


def say(text):
    print(f"demo: {text}", flush=True)


def mib(number):
    return f"{number / 2**20:.0f} MiB"


def drain_once(turn, witness):
    old = kit.ready_pod("app=counter")
    node = old["spec"]["nodeName"]
    before = witness.only()["last"]
    say(f"drain {turn} of {DRAINS}: kubectl drain {node}, under {old['metadata']['name']} at count {before}")
    done = kit.drain(node)
    for line in done.output.splitlines():
        if "holdfast:" in line:
            say(f"  kubectl says: {line[line.index('holdfast:'):][:110]}")
            break
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    witness.wait_progress()
    kit.kubectl("uncordon", node)
    checkpoint = kit.get("checkpoints.holdfast.dev", new["metadata"]["annotations"].get("holdfast.dev/restore", "none"))
    if not checkpoint:
        raise kit.Failure(f"{new['metadata']['name']} started cold: kubectl describe pod {new['metadata']['name']}")
    status = checkpoint["status"]
    report = witness.only()
    gap = max((g["ms"] for g in report["gaps"]), default=0) / 1000
    say(
        f"  drained in {done.seconds:.1f} s; {mib(status['size']['memory'])}, frozen {status['timings']['frozen']}; "
        f"goes on on {new['spec']['nodeName']} as {new['metadata']['name']} at count {report['last']}; longest gap so far {gap:.1f} s"
    )


def main():
    kit.uncordon_all()
    kit.kubectl("apply", "-f", str(kit.ROOT / "examples" / "counter.yaml"))
    kit.ready_pod("app=witness", limit=120)
    kit.ready_pod("app=counter", limit=120)
    witness = kit.Witness()
    kit.wait("the first counts at the witness", lambda: witness.report())
    if len(witness.report()) > 1:  # of an earlier demo
        witness.reset()
        kit.wait("counts at the witness", lambda: witness.report())
    time.sleep(1)  # so that a person sees it count before the first drain
    for turn in range(1, DRAINS + 1):
        drain_once(turn, witness)
    report = witness.only()
    kit.assert_nothing_lost(report)
    print()
    print("Try next:")
    print("  tests/cluster/kubectl get checkpoints              # what was taken, how long it was frozen, how big it is")
    print("  tests/cluster/kubectl logs deploy/counter -f       # it never noticed")
    print("  tests/cluster/kubectl drain node1 --ignore-daemonsets --delete-emptydir-data    # once more, by hand")
    print()
    print(f"demo: {DRAINS} drains, {report['lost'] + report['repeated']} counts lost, longest gap {report['longest_gap_ms'] / 1000:.1f} s")


if __name__ == "__main__":
    try:
        main()
    except kit.Failure as failure:
        sys.exit(f"demo: {failure}")
