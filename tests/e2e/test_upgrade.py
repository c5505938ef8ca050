"""New images while drains run and pods wait to be restored; Holdfast taken away and brought back under protected pods. The other image is
another build of the same sources (every program differs, none behaves differently); two releases side by side: scripts/skew.py."""

import pytest

import faults
import judge
import kit
import releases


@pytest.fixture
def other_build(clean_slate):
    """The image tags of the installed build and of another one. Afterwards the installed one is so again."""
    installed = releases.installed()
    yield installed, releases.stamped("upgrade")
    releases.roll_out(releases.Release(installed))
    releases.await_rolled_out()


def test_all_images_are_rolled_out_in_mid_drain_and_the_state_still_moves(counter, other_build):
    """Once while the agent stores, once while the successor waits to be scheduled, once while it is about to be restored."""
    for turn, point in enumerate(kit.of_this_commit(["ingest.segment_sent", "controller.claimed", "agent.before_restore_answer"], 1)):
        release = releases.Release(other_build[(turn + 1) % 2])
        faults.drain_meanwhile(counter, point, lambda _, release=release: releases.roll_out(release), limit=120)
        assert len(counter.report()) == 1, f"rolled out at {point}: a counter started cold"
        releases.await_rolled_out()


def test_a_pod_that_runs_on_while_holdfast_is_uninstalled_and_installed_again_moves_with_its_state(counter):
    pod = kit.ready_pod("app=counter")
    kit.run(kit.CLUSTER / "helm", "uninstall", "holdfast", "-n", kit.SYSTEM, "--wait", timeout=180)
    releases.install_again()
    assert kit.ready_pod("app=counter")["metadata"]["uid"] == pod["metadata"]["uid"], "reinstalling touched the pod"
    kit.drain(pod["spec"]["nodeName"])
    judge.assert_all_is_well(counter)
    kit.assert_nothing_lost(counter.only())
