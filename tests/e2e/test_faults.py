"""Holdfast's own processes die in mid-drain: the state still moves, or the original runs on and an event says why. Never two copies."""

import pytest

import kit


def drain_through(counter, break_something):
    """Drains the counter's node while break_something(node) happens; returns the successor pod once it counts."""
    old = kit.ready_pod("app=counter")
    node = old["spec"]["nodeName"]
    break_something(node)
    draining = kit.drain_in_background(node)
    try:
        output, _ = draining.communicate(timeout=150)
    finally:
        draining.kill()
    assert draining.returncode == 0, output
    new = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=120)
    counter.wait_progress(limit=60)
    return new


AGENT_POINTS = ("agent.intent_written", "agent.dumped", "agent.before_commit", "agent.after_commit", "agent.before_ready")
CONTROLLER_POINTS = ("controller.assigned", "controller.before_evict", "controller.after_evict", "controller.claimed")
STORE_POINTS = ("store.put", "store.before_sync", "store.before_manifest_rename", "store.after_manifest_rename")


def drain_with_fault(counter, point, where=lambda node: node):
    """A drain in which the named point kills its process once, on the node that where() makes of the drained one."""
    armed = []

    def arm(node):
        armed.append(where(node))
        kit.arm_fault(armed[0], point)

    drain_through(counter, arm)
    kit.assert_fault_hit(armed[0], point)
    kit.assert_nothing_lost(counter.only())


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_the_agent_dies_in_mid_drain_and_the_state_still_moves(counter, point):
    drain_with_fault(counter, point)


@pytest.mark.parametrize("point", CONTROLLER_POINTS)
def test_the_controller_dies_in_mid_drain_and_the_state_still_moves(counter, point):
    drain_with_fault(counter, point, lambda _: kit.SYSTEM_NODE)


@pytest.mark.parametrize("point", STORE_POINTS)
def test_the_store_dies_in_mid_drain_and_the_state_still_moves(counter, point):
    drain_with_fault(counter, point, lambda _: kit.SYSTEM_NODE)


def test_the_restoring_agent_dies_before_it_answers_and_the_state_still_moves(counter):
    drain_with_fault(counter, "agent.before_restore_answer", lambda node: next(n for n in kit.WORKERS if n != node))
