"""kill -9 of Holdfast's processes, containerd or the kubelet at named points of a drain: the drain ends, and the state has moved, or an event
says why not. Never two copies, nothing frozen. One counter lives through all points of a test; HF_POINTS=agent.dumped,… takes these only."""

import os

import pytest

import faults
import kit


# Whoever dies here takes the request with it, a moment later: by then the process may run already, and must not be restored a second time.
MAY_START_COLD = {("runtime.before_restore", "containerd"), ("runtime.before_restore", "kubelet")}


def go_through(counter, steps):
    """A drain for each (point, victim), with the same counter, which loses nothing."""
    only = set(filter(None, os.environ.get("HF_POINTS", "").split(",")))
    for point, victim in steps if only else kit.of_this_commit(steps, 3):
        if only and point not in only:
            continue
        try:
            faults.drain_with_kill(counter, point, victim)
            cold = len(counter.report()) > 1
            assert not cold or (point, victim) in MAY_START_COLD, f"a counter started cold: {counter.report()}"
            if cold:  # an event says so, or the judge would not have let it pass
                counter.reset()
                counter.wait_progress()
        except AssertionError as failure:
            pytest.fail(f"{victim} killed at {point}: {failure}", pytrace=False)


def of(*rooms):
    """The points of these rooms, each of which kills its own process, but the one after which no restore can be made a second time."""
    return [(point, faults.ITSELF) for point in faults.POINTS if point.split(".")[0] in rooms and point != "runtime.after_restore"]


def test_the_agent_dies_at_each_point_of_a_drain_and_the_state_still_moves(counter):
    go_through(counter, of("agent", "ingest"))


def test_the_controller_dies_at_each_point_of_a_drain_and_the_state_still_moves(counter):
    go_through(counter, of("controller"))


def test_the_store_dies_at_each_point_of_a_drain_and_the_state_still_moves(counter):
    go_through(counter, of("store"))


def test_holdfast_runc_dies_at_each_point_of_a_drain_and_the_state_still_moves(counter):
    go_through(counter, of("runtime"))


# Both die at each point in turn (make soak: at random ones); after runtime.after_restore no second restore can be made.
CONTAINERD_DIES = list(faults.POINTS)[:-1:2]
KUBELET_DIES = list(faults.POINTS)[1:-1:2]


def test_containerd_dies_in_mid_drain_and_the_state_still_moves(counter):
    go_through(counter, [(point, "containerd") for point in CONTAINERD_DIES])


def test_the_kubelet_dies_in_mid_drain_and_the_state_still_moves(counter):
    go_through(counter, [(point, "kubelet") for point in KUBELET_DIES])


def test_a_process_dies_while_another_one_is_at_work_and_the_state_still_moves(counter):
    go_through(counter, [
        ("runtime.frozen", "agent"),
        ("store.put", "agent"),
        ("agent.commit_asked", "store"),
        ("runtime.before_kill", "agent"),
        ("controller.claimed", "agent"),
        ("runtime.before_restore", "agent"),
        ("runtime.after_restore", "agent"),
    ])


def test_the_leader_dies_while_a_pod_is_dumped_and_the_state_moves_or_an_event_says_why(counter):
    """For the second until its address is out of the Service, requests that the API server sends there pass unseen: the webhooks fail open."""
    faults.drain_with_kill(counter, "agent.dumped", "controller")


@pytest.mark.parametrize("victim", (faults.ITSELF, "containerd"))
def test_a_restore_that_was_cut_off_when_its_process_ran_is_not_made_twice_and_says_so(counter, victim):
    """The process ran for a moment, and what it did then cannot be taken back: so it starts cold, and the user is told."""
    faults.drain_with_kill(counter, "runtime.after_restore", victim)
    report = counter.report()
    if len(report) > 1:
        name = kit.ready_pod("app=counter")["metadata"]["name"]
        assert any(reason in ("ColdStart", "RestartedCold") for reason, _ in kit.events(name)), kit.events(name)
    for history in report.values():
        kit.assert_nothing_lost(history)
