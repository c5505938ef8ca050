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


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_the_agent_dies_in_mid_drain_and_the_state_still_moves(counter, point):
    drain_through(counter, lambda node: kit.arm_fault(node, point))
    kit.assert_nothing_lost(counter.only())


@pytest.mark.parametrize("point", CONTROLLER_POINTS)
def test_the_controller_dies_in_mid_drain_and_the_state_still_moves(counter, point):
    drain_through(counter, lambda _: kit.arm_fault(kit.SYSTEM_NODE, point))
    kit.assert_nothing_lost(counter.only())


@pytest.mark.parametrize("point", STORE_POINTS)
def test_the_store_dies_in_mid_drain_and_the_state_still_moves(counter, point):
    drain_through(counter, lambda _: kit.arm_fault(kit.SYSTEM_NODE, point))
    kit.assert_nothing_lost(counter.only())


def test_the_restoring_agent_dies_before_it_answers_and_the_state_still_moves(counter):
    def break_the_other(node):
        other = next(n for n in kit.WORKERS if n != node)
        kit.arm_fault(other, "agent.before_restore_answer")

    drain_through(counter, break_the_other)
    kit.assert_nothing_lost(counter.only())
