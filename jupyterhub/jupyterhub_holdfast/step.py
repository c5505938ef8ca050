"""What a start does, decided from what the API server has. Pure: no call, no clock.

Whose memory is where: in the pod that runs (of `kept`, or one that came after it and whose uid is not written down yet), or in a Checkpoint
of the pod of `kept`. A hub may die between any two calls, so each combination is met at some time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Sequence, Union

from .kept import Checkpoint, Kept, Pod


@dataclass(frozen=True)
class Adopt:
    """The pod has the memory, and runs or is about to: it is used as it is."""

    pod: Pod


@dataclass(frozen=True)
class Undo:
    """A suspension was given up half way: its Checkpoint is deleted, so that the pod goes on. Then look again."""

    checkpoint: Checkpoint


@dataclass(frozen=True)
class Resume:
    checkpoint: Checkpoint  # Ready, and nobody's; the pod that it was taken of never runs again


@dataclass(frozen=True)
class Wait:
    why: str


@dataclass(frozen=True)
class Anew:
    """There is no memory of it anywhere."""


Step = Union[Adopt, Undo, Resume, Wait, Anew]


def next_step(kept: Optional[Kept], owner: str, pod: Optional[Pod], checkpoints: Sequence[Checkpoint]) -> Step:
    """`pod`: the one of the server's name, if any. `checkpoints`: as Keeper.checkpoints of `kept`."""
    if pod is not None and pod.owner != owner:
        pod = None
    known = {c.pod_uid for c in checkpoints} | ({kept.pod_uid} if kept is not None else set())
    if pod is not None and pod.uid not in known and pod.alive:
        return Adopt(pod)  # it has gone on from what was kept, or will
    held = next((c for c in checkpoints if c.holds_state), None)
    if pod is not None and pod.uid in known:
        if held is None:
            return Adopt(pod) if pod.alive else Anew()
        if held.phase == "Ready":
            return Resume(held)
        if pod.alive and held.trigger == "Suspend":
            return Undo(held)
        return Wait(f"Checkpoint {held.name} is {held.phase}")
    if held is not None:
        return Resume(held) if held.phase == "Ready" else Wait(f"Checkpoint {held.name} is {held.phase}")
    given = next((c for c in checkpoints if c.undecided), None)
    if given is not None:
        return Wait(f"Checkpoint {given.name} is still given to another pod")
    return Anew()
