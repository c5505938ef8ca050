"""Where a server's memory may be when it is started, and what the start does."""

import pytest
from jupyterhub_holdfast.kept import Checkpoint, Kept, Pod
from jupyterhub_holdfast.step import Adopt, Anew, Resume, Undo, Wait, next_step

KEPT = Kept({}, "u1", "alice")


def pod(uid="u1", phase="Running", terminating=False, owner="alice"):
    return Pod(uid, owner, phase, terminating)


def checkpoint(phase="Ready", trigger="Suspend", uid="u1", claimed_by="", outcome="", ran=False):
    return Checkpoint("c", uid, phase, trigger, "", "", "", "", "jupyter-alice", claimed_by, "jupyter-alice" if claimed_by else "", outcome, ran, "", False)


@pytest.mark.parametrize("what, kept, there, checkpoints, expected", [
    ("nothing was ever kept", None, None, [], Anew),
    ("its pod ended by itself", KEPT, pod(phase="Failed"), [], Anew),
    ("its pod is gone and nothing was kept of it", KEPT, None, [], Anew),
    ("it could not be suspended and runs on", KEPT, pod(), [], Adopt),
    ("the hub died before it wrote the pod down", KEPT, pod("u2"), [], Adopt),
    ("the hub died while the pod waited for room", KEPT, pod("u2", "Pending"), [checkpoint(claimed_by="u2")], Adopt),
    ("it sleeps", KEPT, None, [checkpoint()], Resume),
    ("it sleeps, and its frozen pod is still there", KEPT, pod(), [checkpoint()], Resume),
    ("its node is gone, its pod cannot end", KEPT, pod(terminating=True), [checkpoint()], Resume),
    ("a suspension was given up", KEPT, pod(), [checkpoint("Storing")], Undo),
    ("its node is drained just now", KEPT, pod(), [checkpoint("Storing", "Drain")], Wait),
    ("its pod was deleted, and is stored", KEPT, pod(terminating=True), [checkpoint("Storing", "Stop")], Wait),
    ("its pod is gone, and is stored", KEPT, None, [checkpoint("Storing", "Stop")], Wait),
    ("the last resume was given up, and the checkpoint is not free yet", KEPT, None, [checkpoint(claimed_by="u2")], Wait),
    ("the restore failed before anything ran", KEPT, None, [checkpoint(claimed_by="u2", outcome="Failed")], Wait),
    ("the restore failed after it ran", KEPT, None, [checkpoint(claimed_by="u2", outcome="Failed", ran=True)], Anew),
    ("it went on and ended by itself", KEPT, pod("u2", "Succeeded"), [checkpoint(claimed_by="u2", outcome="Restored")], Anew),
    ("it went on and was drained before the pod was written down", KEPT, pod("u2"), [checkpoint("Ready", "Drain", "u2"), checkpoint(claimed_by="u2", outcome="Restored")], Resume),
    ("Holdfast took it back, and the pod ran on", KEPT, pod(), [checkpoint("Failed", claimed_by="u1")], Adopt),
    ("the pod of that name is another user's", KEPT, pod(owner="bob"), [checkpoint()], Resume),
    ("the pod of that name is nobody's, and nothing is kept", None, pod(owner=""), [], Anew),
])
def test_a_start_goes_on_from_where_the_memory_is(what, kept, there, checkpoints, expected):
    assert isinstance(next_step(kept, "alice", there, checkpoints), expected), what
