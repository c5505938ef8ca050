"""The network between two components breaks in mid-drain: whoever waits says what for, and in the end there is one copy, which lost nothing."""

import contextlib

import faults
import judge
import kit
import leaks
import network
from test_many import start_on

FINAL = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: %(name)s}
spec:
  podRef: {name: %(pod)s}
  final: true
  deadline: %(deadline)ds
"""
MANUAL = FINAL.replace("  final: true\n", "")


def drain_with_broken_network(counter, point, path_of, how, seconds):
    node = kit.ready_pod("app=counter")["spec"]["nodeName"]
    faults.drain_with_broken_network(counter, point, path_of, how, seconds)
    assert kit.ready_pod("app=counter")["spec"]["nodeName"] != node
    assert len(counter.report()) == 1, "a counter started cold"


@contextlib.contextmanager
def held_checkpoint(point, name, deadline):
    """Asks for a final checkpoint of the counter without draining its node (whatever becomes of it, nobody evicts the pod but Holdfast), and
    stops the agent at the point: its pod, its node, and the hold."""
    pod = kit.ready_pod("app=counter")
    node = pod["spec"]["nodeName"]
    with faults.held(node, point) as hold:
        kit.apply(FINAL % {"name": name, "pod": pod["metadata"]["name"], "deadline": deadline})
        hold.wait()
        yield pod, node, hold


def frozen(node):
    return leaks.node_state(node)["frozen"]


def assert_went_on_where_it_was(counter, pod):
    """The pod was thawed: same pod, same process, no count lost; and Holdfast still works."""
    judge.assert_all_is_well(counter)
    assert kit.ready_pod("app=counter")["metadata"]["uid"] == pod["metadata"]["uid"]
    assert len(counter.report()) == 1


def test_agent_and_store_are_cut_off_while_the_checkpoint_is_stored_and_the_state_moves(counter):
    ways = [("agent.dumped", network.CUT), ("ingest.segment_sent", network.RESET), ("agent.commit_asked", network.ANSWERS_LOST)]
    for point, how in kit.of_this_commit(ways, 1):
        drain_with_broken_network(counter, point, network.agent_store, how, 3)


def test_a_slow_way_to_the_store_shows_its_progress_and_the_state_moves(counter):
    node = kit.ready_pod("app=counter")["spec"]["nodeName"]
    shown = []
    with faults.held(node, "agent.dumped") as hold, faults.draining(node) as drain:
        hold.wait()
        with network.broken(network.agent_store(node), network.slow(3000)):
            hold.go()

            def half_way():
                for checkpoint in kit.checkpoints():
                    progress = checkpoint.get("status", {}).get("progress", {})
                    if 0 < progress.get("bytes", 0) < progress.get("total", 0):
                        shown.append(progress)
                return shown or drain.poll() is not None

            kit.wait("progress between nothing and all", half_way, limit=60)
    assert shown, "the drain ended and no progress was seen"
    judge.assert_all_is_well(counter)
    assert len(counter.report()) == 1


def test_a_node_with_more_state_than_its_way_to_the_store_takes_in_a_deadline_loses_none_of_it(clean_slate):
    """Hole 5: eight pods of 256 MiB at 5 MB a second, 54 s each and 430 in all, where each has 100 s from its turn on."""
    node = kit.WORKERS[0]
    witness = start_on(node, kit.counter_yaml(256).replace("replicas: 1", "replicas: 8", 1).replace("cpu: 50m", "cpu: 10m"), 8)
    with network.broken(network.agent_store(node), network.slow(5000)):
        drained = kit.drain(node, limit=900)
    assert "its turn comes in about" in drained.output, drained.output
    kit.wait("all are back", lambda: sum(kit.is_ready(p) for p in kit.pods("app=counter")) == 8, limit=120)
    witness.wait_progress(60)
    report = witness.report()
    broken = {n: r for n, r in report.items() if r["lost"] or r["repeated"] or r["hash_mismatches"] or r["two_copies"]}
    assert len(report) == 8 and not broken, broken
    kit.uncordon_all()


def test_a_lost_answer_to_the_commit_is_undone_only_after_the_claim_was_won(counter):
    with held_checkpoint("agent.commit_asked", "answer-lost", deadline=25) as (pod, node, hold):
        with network.broken(network.agent_store(node), network.ANSWERS_LOST):
            hold.go()
            kit.wait("the agent to win the claim for its own pod", lambda: kit.get("checkpoints.holdfast.dev", "answer-lost")["status"].get("claim"), limit=60)
            checkpoint = kit.ended("answer-lost")
    assert checkpoint["status"]["claim"]["podUID"] == pod["metadata"]["uid"]
    assert checkpoint["status"]["phase"] == "Failed" and kit.ready_reason(checkpoint)[0] == "StoreUnavailable", checkpoint["status"]
    assert_went_on_where_it_was(counter, pod)


def test_an_agent_without_store_and_api_server_keeps_the_pod_frozen_after_it_asked_for_the_commit(counter):
    with held_checkpoint("agent.commit_asked", "cut-off", deadline=25) as (pod, node, hold):
        with network.broken(network.agent_store(node), network.CUT), network.broken(network.agent_api(node), network.CUT):
            hold.go()
            agent = next(p["metadata"]["name"] for p in kit.component_pods("agent") if p["spec"]["nodeName"] == node)
            kit.wait("the agent to say in its log that the pod stays frozen",
                     lambda: "a pod stays frozen" in kit.kubectl("logs", agent, "-n", kit.SYSTEM, "--since=60s"), limit=40)
            assert frozen(node), "the pod was thawed though nobody had said that nobody restores it"
            assert len(counter.report()) == 1
    checkpoint = kit.ended("cut-off")
    assert kit.wait_event(pod["metadata"]["name"], "KeptFrozen")
    if checkpoint["status"]["phase"] == "Ready":  # the store had not been told before the cut, and took it afterwards
        kit.kubectl("delete", "checkpoints.holdfast.dev", "cut-off", "--wait=false")
    assert_went_on_where_it_was(counter, pod)


def test_an_agent_that_nobody_hears_until_its_checkpoint_was_declared_failed_thaws_the_pod(counter):
    with held_checkpoint("agent.intent_written", "unheard", deadline=int(6 * kit.SLOW)) as (pod, node, hold):
        with network.broken(network.agent_api(node), network.CUT):
            hold.go()
            kit.wait("the pod to be frozen", lambda: frozen(node), limit=15)
            # No leader of today says so once the agent has said that it freezes the pod; one of an older release might.
            kit.kubectl("patch", "checkpoints.holdfast.dev", "unheard", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Failed"}}')
    assert kit.ended("unheard")["status"]["phase"] == "Failed"
    assert_went_on_where_it_was(counter, pod)


def test_agent_and_api_server_are_cut_off_after_the_commit_and_the_state_moves(counter):
    drain_with_broken_network(counter, "agent.after_commit", network.agent_api, network.CUT, 5)
    drain_with_broken_network(counter, "agent.before_ready", network.agent_api, network.ANSWERS_LOST, 5)


def test_the_restoring_agent_is_cut_off_from_store_or_api_server_and_the_state_moves(counter):
    drain_with_broken_network(counter, "controller.claimed", lambda node: network.agent_store(faults.other(node)), network.CUT, 5)
    drain_with_broken_network(counter, "agent.fetched", lambda node: network.agent_api(faults.other(node)), network.CUT, 5)


def test_the_controller_is_cut_off_from_the_api_server_and_the_state_moves(counter):
    drain_with_broken_network(counter, "controller.before_evict", lambda _: network.controller_api(), network.CUT, 5)
    drain_with_broken_network(counter, "controller.claimed", lambda _: network.controller_api(), network.CUT, 20)  # longer than its lease


def test_the_kubelet_is_cut_off_from_the_api_server_and_the_state_moves(counter):
    drain_with_broken_network(counter, "controller.after_evict", network.kubelet_api, network.CUT, 5)
    drain_with_broken_network(counter, "controller.claimed", lambda node: network.kubelet_api(faults.other(node)), network.CUT, 5)


def test_the_store_is_cut_off_from_the_api_server_and_the_state_moves(counter):
    """It cannot ask whose a token is: it says so, and is asked again."""
    drain_with_broken_network(counter, "agent.before_commit", lambda _: network.store_api(), network.CUT, 4)


def test_a_checkpoint_stays_until_the_controller_reaches_the_store_and_its_content_is_gone(counter):
    pod = kit.ready_pod("app=counter")
    kit.apply((FINAL % {"name": "kept", "pod": pod["metadata"]["name"], "deadline": 60}).replace("final: true", "final: false"))
    assert kit.ended("kept")["status"]["phase"] == "Ready"
    with network.broken(network.controller_store(), network.CUT):
        kit.kubectl("delete", "checkpoints.holdfast.dev", "kept", "--wait=false")
        kit.stays("the object, while its content is there", lambda: kit.get("checkpoints.holdfast.dev", "kept"), 4)
    kit.wait("the Checkpoint to go", lambda: kit.get("checkpoints.holdfast.dev", "kept") is None, limit=60)


def test_the_kubelets_answer_to_a_manual_checkpoint_is_lost_and_the_pod_goes_on(counter):
    """holdfast-runc has written down what it made, so that the checkpoint is kept all the same; the kubelet's archive does not stay."""
    pod = kit.ready_pod("app=counter")
    node = pod["spec"]["nodeName"]
    with faults.held(node, "runtime.frozen") as hold:
        kit.apply(MANUAL % {"name": "unheard", "pod": pod["metadata"]["name"], "deadline": 15})
        hold.wait()
        with network.broken(network.agent_kubelet(node), network.ANSWERS_LOST):
            hold.go()
            checkpoint = kit.ended("unheard", limit=60)
    assert checkpoint["status"]["phase"] == "Ready", checkpoint["status"]
    assert_went_on_where_it_was(counter, pod)


def test_the_kubelet_cannot_be_reached_and_a_manual_checkpoint_says_so(counter):
    pod = kit.ready_pod("app=counter")
    with network.broken(network.agent_kubelet(pod["spec"]["nodeName"]), network.CUT):
        kit.apply(MANUAL % {"name": "unasked", "pod": pod["metadata"]["name"], "deadline": 10})
        checkpoint = kit.ended("unasked", limit=60)
    assert checkpoint["status"]["phase"] == "Failed", checkpoint["status"]
    assert "kubelet" in kit.ready_reason(checkpoint)[1], checkpoint["status"]
    assert_went_on_where_it_was(counter, pod)


def test_the_api_server_cannot_reach_the_webhooks_and_a_drain_works_as_always_and_says_what_was_lost(counter):
    pod = kit.ready_pod("app=counter")
    with network.broken(network.api_webhooks(), network.CUT):
        kit.drain(pod["spec"]["nodeName"], "--timeout=100s")
        successor = kit.ready_pod("app=counter", not_uid=pod["metadata"]["uid"])
    kit.wait_event(successor["metadata"]["name"], "NotProtected")
    judge.assert_all_is_well(counter)
    kit.uncordon_all()
