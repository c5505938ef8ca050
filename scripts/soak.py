#!/usr/bin/env python3
"""make soak: drains for a long time, in two parts. First the real software of docs/compatibility.md (what make test-all moves, once) goes back and
forth between the workers, and its content is checked after each move. Then a counter is drained, and in most drains something breaks at a random
named point: one of Holdfast's processes, containerd or the kubelet dies, the network between two of them is cut for some seconds, or a node loses its
power; a thousand peers trickle, or a node has no room for dumps. All the while a sidecar of the counter swaps folders of their volume for links into the
node. tests/e2e/judge.py judges each, tests/e2e/leaks.py the end of both, tests/e2e/hostile.py that nothing of the nodes was touched.

Writes bench/results/soak.json: {commit, mib, moves, faults, lost, leaked, touched, seconds, …}; stops at the first drain of the counter that the judge
finds wrong, with what it found in `wrong`. Ends by itself after --faults faults or --minutes, whichever comes first.
"""

import argparse
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "e2e"))
import faults  # noqa: E402
import hostile  # noqa: E402
import kit  # noqa: E402
import leaks  # noqa: E402
import moving  # noqa: E402
import network  # noqa: E402
import workloads  # noqa: E402

PATHS = {
    "agent-api": network.agent_api, "agent-store": network.agent_store, "kubelet-api": network.kubelet_api,
    "new-agent-api": lambda node: network.agent_api(faults.other(node)), "new-agent-store": lambda node: network.agent_store(faults.other(node)),
    "controller-api": lambda _: network.controller_api(), "controller-store": lambda _: network.controller_store(),
    "store-api": lambda _: network.store_api(),
}
HOW = {"cut": network.CUT, "answers lost": network.ANSWERS_LOST, "requests lost": network.REQUESTS_LOST, "reset": network.RESET}


def drain_beside_peers(witness):
    with hostile.trickling():
        faults.plain_drain(witness)


def drain_without_room(witness):
    """The counter's node has no room for its dump: its state is lost, and that is told."""
    with hostile.small_landing(kit.ready_pod("app=counter")["spec"]["nodeName"]):
        faults.plain_drain(witness)


def draw():
    """(what breaks, drain) at random."""
    kind = random.random()
    point = random.choice(list(faults.POINTS))
    if kind < 0.08:
        return "nothing", faults.plain_drain
    if kind < 0.16:
        return "peers that trickle", drain_beside_peers
    if kind < 0.2:
        return "no room", drain_without_room
    if kind < 0.32:
        return f"reboot at {point}", lambda witness: faults.drain_with_reboot(witness, point)
    if kind < 0.75:
        victim = random.choice(faults.VICTIMS)
        return f"{victim} at {point}", lambda witness: faults.drain_with_kill(witness, point, victim)
    path, how, seconds = random.choice(list(PATHS)), random.choice(list(HOW)), random.uniform(0.5, 6)
    return f"{path} {how} for {seconds:.1f} s at {point}", lambda witness: faults.drain_with_broken_network(witness, point, PATHS[path], HOW[how], seconds)


def protect_again():
    """A pod that was created while no webhook answered is not protected, and its event says what to do: so it is done."""
    pod = kit.ready_pod("app=counter", limit=120)
    if pod["spec"].get("runtimeClassName") != "holdfast":
        kit.wait_event(pod["metadata"]["name"], "NotProtected")
        kit.kubectl("delete", "pod", pod["metadata"]["name"])
        kit.ready_pod("app=counter", limit=120, not_uid=pod["metadata"]["uid"])


def left_behind():
    """What is left after what a fault leaves for a moment has gone."""
    leaked = []

    def clean():
        leaked[:] = leaks.on_nodes() + leaks.in_the_api()
        return not leaked

    try:
        kit.wait("nothing left behind", clean, limit=60)
    except kit.Failure:
        print("\n".join(leaked))
    return leaked


def move_mixed(drains):
    """Every workload `drains` times between the two containerds; {workloads, moves, wrong, leaked}."""
    images, done = moving.Images(), {"workloads": 0, "moves": 0, "wrong": [], "leaked": 0}
    for name in dict.fromkeys(w.batch for w in workloads.WORKLOADS):
        batch = workloads.batch(name)
        print(f"soak: {drains} drains with {', '.join(w.name for w in batch)}", flush=True)
        problems, moves = moving.move_all(batch, images, drains)
        done["workloads"] += len(batch)
        done["moves"] += moves
        done["wrong"] += problems
        kit.uncordon_all()
        kit.remove_everything()
        done["leaked"] += len(left_behind())
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--drains", type=int, default=7, help="of each workload of docs/compatibility.md")
    parser.add_argument("--mib", type=int, default=100, help="memory of the counter that is drained")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    random.seed(options.seed)
    network.heal_all()
    kit.disarm_faults()
    kit.uncordon_all()
    kit.remove_everything()
    mixed = move_mixed(options.drains) if options.drains else {}
    start = time.monotonic()
    hostile.put_canaries()
    witness = kit.start_counter(hostile.with_racing_sidecar(kit.counter_yaml(options.mib), moving.Images()("common")))
    witness.reset()
    witness.wait_progress()
    result = {"commit": kit.run("git", "-C", str(kit.ROOT), "rev-parse", "HEAD").strip(), "seed": options.seed, "mib": options.mib, "moves": 0, "faults": 0, "lost": 0,
              "cold_starts_told": 0, "longest_gap_ms": 0, "wrong": "", "mixed": mixed, "by_fault": {}}
    while result["faults"] < options.faults and time.monotonic() - start < options.minutes * 60:
        what, drain = draw()
        print(f"soak: {time.monotonic() - start:.0f} s, {result['moves']} moves, {result['faults']} faults; next: {what}", flush=True)
        try:
            drain(witness)
        except AssertionError as failure:
            result["wrong"] = f"{what}: {failure}"
        report = witness.report()
        result["lost"] += sum(r["lost"] + r["repeated"] for r in report.values())
        result["cold_starts_told"] += len(report) - 1
        result["longest_gap_ms"] = max([result["longest_gap_ms"], *(r["longest_gap_ms"] for r in report.values())])
        result["moves"] += 1
        result["faults"] += what != "nothing"
        name = what.split(" at ")[0] if " for " not in what else what.split(" for ")[0]
        result["by_fault"][name] = result["by_fault"].get(name, 0) + 1
        if result["wrong"]:
            break
        protect_again()
        witness.reset()
        witness.wait_progress()
    # The counter stays, and with it what belongs to it.
    leaked = [] if result["wrong"] else left_behind()
    touched = hostile.host_touched()
    print("\n".join(touched))
    result.update(leaked=len(leaked), touched=touched, seconds=round(time.monotonic() - start))
    path = kit.ROOT / "bench" / "results" / "soak.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 1 if result["lost"] or result["leaked"] or touched or result["wrong"] or mixed.get("wrong") or mixed.get("leaked") else 0


if __name__ == "__main__":
    sys.exit(main())
