"""The judge finds what it is there for: made-up looks at a cluster, each with one thing wrong."""

import copy

import pytest

import judge

GOOD = {"last": 10, **dict.fromkeys(("lost", "repeated", "monotonic_jumps", "hash_mismatches", "loopback_broken", "share_broken", "two_copies"), 0)}
PROCESS = {"name": "counter", "state": "S", "container": "c1" * 32, "pod": "u1"}
POD = {"metadata": {"name": "counter-1", "uid": "u1"}, "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


@pytest.fixture(autouse=True)
def clean_slate():
    """Nothing here touches the cluster."""


def well():
    return judge.Seen(
        before={"n1": dict(GOOD, last=5)}, after={"n1": dict(GOOD)}, pods=[copy.deepcopy(POD)], checkpoints=[], events=[],
        nodes={"node1": {"processes": [dict(PROCESS)], "frozen": []}, "node2": {"processes": [], "frozen": []}})


def test_the_judge_finds_nothing_where_all_is_well():
    assert judge.faults_found(well()) == []


def lost(seen):
    seen.after["n1"]["lost"] = 1


def second_process(seen):
    seen.nodes["node2"]["processes"].append(dict(PROCESS, container="c2" * 32, pod="u0"))


def second_counter(seen):
    seen.before["n0"], seen.after["n0"] = dict(GOOD, last=1), dict(GOOD, last=2)


def silent_cold_start(seen):
    seen.before["n0"], seen.after["n0"] = dict(GOOD), dict(GOOD)


def frozen(seen):
    seen.nodes["node1"]["frozen"] = ["/sys/fs/cgroup/freezer/pod"]


def gated(seen):
    seen.pods[0]["spec"]["schedulingGates"] = [{"name": "holdfast.dev/claim"}]


def under_way(seen):
    seen.checkpoints.append({"metadata": {"name": "ck"}, "status": {"phase": "Storing"}})


def untold(seen):
    seen.checkpoints.append({"metadata": {"name": "ck"}, "status": {"phase": "Ready", "podUID": "u0", "claim": {"podName": "counter-1", "podUID": "u1"}}})


def only_begun(seen):
    untold(seen)
    seen.checkpoints[0]["status"]["restores"] = [{"podName": "counter-1", "outcome": "Started"}]


def nobody_counts(seen):
    seen.before = copy.deepcopy(seen.after)


def test_the_judge_finds_each_thing_that_may_be_wrong():
    for spoil in (lost, second_process, second_counter, silent_cold_start, frozen, gated, under_way, untold, only_begun, nobody_counts):
        seen = well()
        spoil(seen)
        assert judge.faults_found(seen), spoil.__name__


def test_the_judge_takes_a_cold_start_that_an_event_tells():
    seen = well()
    silent_cold_start(seen)
    seen.events = [{"reason": "ColdStart", "note": "why"}]
    assert judge.faults_found(seen) == []


def test_the_judge_takes_a_restore_whose_outcome_is_known():
    seen = well()
    only_begun(seen)
    seen.checkpoints[0]["status"]["restores"][0]["outcome"] = "Restored"
    assert judge.faults_found(seen) == []
