"""What is kept of a server: its pod's manifest in a Secret, its memory in Checkpoints.

The Secret (named holdfast-POD) is written before the pod is created. It holds the manifest exactly as the hub sends it, with the API token
that the processes in the checkpoint know, and says whose it is: names come again. The pod's uid follows when it runs.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Optional

import aiohttp
from kubernetes_asyncio.client import ApiException

GROUP, VERSION, PLURAL = "holdfast.dev", "v1alpha1", "checkpoints"
FROM_CHECKPOINT = "holdfast.dev/from-checkpoint"
PROTECT, POLICY = "holdfast.dev/protect", "holdfast.dev/policy"
OWNER = "jupyterhub.holdfast.dev/owner"
SET_ASIDE = "jupyterhub.holdfast.dev/set-aside"
TOKEN = "JUPYTERHUB_API_TOKEN"
POLL_EVERY = 0.5  # seconds

Object = dict[str, Any]


class SuspendFailed(Exception):
    """The pod runs on. The text says why."""


def said(error: BaseException) -> str:
    """Of an ApiException what its server said, in a line."""
    if not isinstance(error, ApiException):
        return str(error) or type(error).__name__
    try:
        return str(json.loads(error.body or b"")["message"])
    except (TypeError, ValueError, KeyError):
        return f"the Kubernetes API server: {error.status or ''} {error.reason}".replace("  ", " ")


@dataclass(frozen=True)
class Pod:
    uid: str
    owner: str  # as in Kept; empty: it is none of ours
    phase: str
    terminating: bool

    @staticmethod
    def of(found: Object) -> "Pod":
        """`found`: in the API's own spelling."""
        meta = found["metadata"]
        return Pod(
            uid=meta.get("uid") or "",
            owner=(meta.get("annotations") or {}).get(OWNER, ""),
            phase=(found.get("status") or {}).get("phase") or "Pending",
            terminating=bool(meta.get("deletionTimestamp")),
        )

    @property
    def alive(self) -> bool:
        """Its processes run, or will."""
        return not self.terminating and self.phase in ("Pending", "Running", "Unknown")

    @property
    def runs(self) -> bool:
        return not self.terminating and self.phase == "Running"


@dataclass(frozen=True)
class Kept:
    manifest: Object  # of the pod, as it was created
    pod_uid: str  # of the last one that ran; empty: none has
    owner: str  # the hub's id of the user, when it was made (ids come again), and the server's name

    @property
    def token(self) -> str:
        """The API token that the server's processes hold. Empty: it has none."""
        for container in self.manifest["spec"].get("containers", []):
            for variable in container.get("env") or []:
                if variable["name"] == TOKEN:
                    return str(variable.get("value") or "")
        return ""


@dataclass(frozen=True)
class Checkpoint:
    """A final checkpoint of the server's pod."""

    name: str
    pod_uid: str
    phase: str  # of the CRD: Pending to Ready or Failed, Deleting
    trigger: str
    reason: str
    message: str
    size: str
    completed_at: str
    pod_name: str
    claimed_by: str  # uid of the pod that goes on from it; empty: nobody
    claimed_name: str
    outcome: str  # what became of that: Restored, ColdStart or Failed; empty: it has not been said yet
    ran: bool  # of Failed: its processes may have run
    outcome_reason: str
    terminating: bool

    @staticmethod
    def of(found: Object) -> "Checkpoint":
        spec, status, meta = found.get("spec", {}), found.get("status", {}), found["metadata"]
        ready: Object = next((c for c in status.get("conditions", []) if c.get("type") == "Ready"), {})
        claim: Object = status.get("claim") or {}
        # Pods of a server have the same name, so what is older than the claim was another one's.
        outcome: Object = next(
            (
                r
                for r in reversed(status.get("restores") or [])
                if r.get("podName") == claim.get("podName") and _time(r.get("at", "")) >= _time(claim.get("at", ""))
            ),
            {},
        )
        return Checkpoint(
            name=meta["name"],
            pod_uid=spec.get("podRef", {}).get("uid", ""),
            phase=status.get("phase") or "Pending",
            trigger=spec.get("trigger", "Manual"),
            reason=ready.get("reason", ""),
            message=ready.get("message", ""),
            size=status.get("summary", {}).get("size", ""),
            completed_at=status.get("completedAt", ""),
            pod_name=spec.get("podRef", {}).get("name", ""),
            claimed_by=claim.get("podUID", ""),
            claimed_name=claim.get("podName", ""),
            outcome=outcome.get("outcome", ""),
            ran=bool(outcome.get("ran")),
            outcome_reason=outcome.get("reason", ""),
            terminating="deletionTimestamp" in meta,
        )

    @property
    def exists(self) -> bool:
        return not self.terminating and self.phase not in ("Failed", "Deleting")

    @property
    def holds_state(self) -> bool:
        """Whether a server may still go on from it, now or when it is done."""
        return self.exists and not self.claimed_by

    @property
    def undecided(self) -> bool:
        """Given to a pod that has not run from it. If that pod is gone, Holdfast takes it back within seconds."""
        return self.exists and self._given and (not self.outcome or (self.outcome == "Failed" and not self.ran))

    @property
    def used(self) -> bool:
        """The server's next pod has run from it."""
        return self._given and self.claimed_name == self.pod_name and bool(self.outcome) and not self.undecided

    @property
    def _given(self) -> bool:
        return self.claimed_by not in ("", self.pod_uid)  # its own pod: it was taken back, and that one ran on


class Keeper:
    """Reads and writes what is kept, in one namespace. Whatever the API server refuses comes as its ApiException."""

    def __init__(self, core: Any, custom: Any, namespace: str, timeout: float = 10) -> None:
        self.core, self.custom, self.namespace, self.timeout = core, custom, namespace, timeout

    @staticmethod
    def secret_of(pod_name: str) -> str:
        return f"holdfast-{pod_name}"[:253].rstrip("-.")

    async def load(self, pod_name: str) -> Optional[Kept]:
        """Nothing: there is none, or it is not one of ours."""
        try:
            secret = await self._call(self.core.read_namespaced_secret(self.secret_of(pod_name), self.namespace))
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        data = secret.data or {}
        try:
            text = {key: base64.b64decode(data[key]).decode() for key in ("manifest", "podUID", "owner")}
            return Kept(json.loads(text["manifest"]), text["podUID"], text["owner"])
        except (KeyError, ValueError):
            return None

    async def save(self, pod_name: str, kept: Kept) -> None:
        await self._save(self.secret_of(pod_name), kept, {})

    async def set_aside(self, pod_name: str, kept: Kept) -> str:
        """Keeps it under a name that no server has, and makes room for another's. The name of its Secret."""
        mark = hashlib.sha256(kept.owner.encode()).hexdigest()[:8]
        name = f"{self.secret_of(pod_name)[:240]}-{mark}"
        await self._save(name, kept, {SET_ASIDE: "true"})
        await self._delete_secret(self.secret_of(pod_name))
        return name

    async def _save(self, name: str, kept: Kept, labels: dict[str, str]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/managed-by": "jupyterhub-holdfast", **labels},
            },
            "type": "holdfast.dev/server",
            "stringData": {"manifest": json.dumps(kept.manifest), "podUID": kept.pod_uid, "owner": kept.owner},
        }
        try:
            await self._call(self.core.create_namespaced_secret(self.namespace, body))
        except ApiException as error:
            if error.status != 409:
                raise
            await self._call(self.core.replace_namespaced_secret(name, self.namespace, body))

    async def pod(self, name: str) -> Optional[Pod]:
        """As the API server has it: a cache may be behind."""
        try:
            found = await self._call(self.core.read_namespaced_pod(name, self.namespace))
        except ApiException as error:
            if error.status == 404:
                return None
            raise
        return Pod.of(self.core.api_client.sanitize_for_serialization(found))

    async def create_pod(self, manifest: Object) -> None:
        await self._call(self.core.create_namespaced_pod(self.namespace, manifest))

    async def forget(self, pod_name: str, pod_uid: str) -> None:
        """The Secret, and every checkpoint of the pod that nobody goes on from."""
        for checkpoint in await self.checkpoints(pod_uid):
            if checkpoint.holds_state:
                await self.delete_checkpoint(checkpoint.name)
        await self._delete_secret(self.secret_of(pod_name))

    async def _delete_secret(self, name: str) -> None:
        try:
            await self._call(self.core.delete_namespaced_secret(name, self.namespace))
        except ApiException as error:
            if error.status != 404:
                raise

    async def checkpoints(self, pod_uid: str) -> list[Checkpoint]:
        """Final ones of this pod, and of those that went on from it under its name; the newest first."""
        found = await self._final_ones()
        line, more = {pod_uid}, True
        while more:
            heirs = {c.claimed_by for c in found if c.pod_uid in line and c.used}
            more = not heirs <= line
            line |= heirs
        return [c for c in found if c.pod_uid in line]

    async def drop_used(self, pod_uid: str) -> None:
        """The checkpoints that this pod went on from."""
        for checkpoint in await self._final_ones():
            if checkpoint.claimed_by == pod_uid and checkpoint.used:
                await self.delete_checkpoint(checkpoint.name)

    async def _final_ones(self) -> list[Checkpoint]:
        found = await self._call(self.custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL))
        final = [item for item in found.get("items", []) if item.get("spec", {}).get("final")]
        final.sort(key=lambda item: str(item["metadata"].get("creationTimestamp", "")), reverse=True)
        return [Checkpoint.of(item) for item in final]

    async def checkpoint(self, name: str) -> Optional[Checkpoint]:
        try:
            return Checkpoint.of(
                await self._call(self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name))
            )
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    async def delete_checkpoint(self, name: str) -> None:
        try:
            await self._call(self.custom.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name))
        except ApiException as error:
            if error.status != 404:
                raise

    async def suspend(self, pod_name: str, pod_uid: str, deadline: float) -> Checkpoint:
        """Takes a final checkpoint of the pod, which stays frozen after it. A hub that died on the way finds the one that it began.

        SuspendFailed: the pod runs on.
        """
        under_way = [c for c in await self.checkpoints(pod_uid) if c.holds_state]
        name = under_way[0].name if under_way else await self._begin(pod_name, pod_uid, deadline)
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline + 10  # Holdfast gives up at the deadline by itself
        while True:
            try:
                checkpoint = await self.checkpoint(name)
            except ApiException as error:
                # The pod may be frozen by now: it is looked after until that is known.
                if loop.time() >= until:
                    raise SuspendFailed(f"what became of Checkpoint {name} cannot be read: {said(error)}") from error
                await asyncio.sleep(POLL_EVERY)
                continue
            if checkpoint is None:
                raise SuspendFailed(f"Checkpoint {name} was deleted")
            if checkpoint.phase == "Ready":
                return checkpoint
            if checkpoint.phase in ("Failed", "Deleting") or checkpoint.terminating:
                raise SuspendFailed(f"{checkpoint.reason or checkpoint.phase}: {checkpoint.message or name}")
            if checkpoint.reason == "Queued":  # others of its node are before it; Holdfast bounds that
                until = loop.time() + deadline + 10
            if loop.time() >= until:
                # Deleted, it lets go of its pod.
                await self.delete_checkpoint(name)
                raise SuspendFailed(f"Checkpoint {name} is {checkpoint.phase} after {deadline:.0f} s: does Holdfast's controller run?")
            # Of many that are stopped together most wait for others: the hub has more to do than to ask for them.
            await asyncio.sleep((4 if checkpoint.reason == "Queued" else 1) * POLL_EVERY)

    async def _begin(self, pod_name: str, pod_uid: str, deadline: float) -> str:
        taken = {c.name for c in await self.checkpoints(pod_uid)}
        base = f"suspend-{pod_name}"[:200].rstrip("-.")
        name = next(n for n in (f"{base}-{pod_uid[:8]}-{i}" for i in range(len(taken) + 1)) if n not in taken)
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Checkpoint",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "jupyterhub-holdfast"}},
            # Pinned: however long its user sleeps.
            "spec": {
                "podRef": {"name": pod_name, "uid": pod_uid},
                "final": True,
                "trigger": "Suspend",
                "pinned": True,
                "deadline": f"{max(1, round(deadline))}s",
            },
        }
        try:
            await self._call(self.custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, body))
        except ApiException as error:
            if error.status != 409:
                raise SuspendFailed(f"no Checkpoint can be created: {said(error)}") from error
        return name

    async def _call(self, call: Any) -> Any:
        """An API server that does not answer is an ApiException of status 0: the call may have come through."""
        try:
            return await asyncio.wait_for(call, self.timeout)
        except (asyncio.TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ApiException(status=0, reason=str(error) or f"no answer within {self.timeout:.0f} s") from error


def _time(text: str) -> datetime.datetime:
    """Of an RFC 3339 time; of anything else, the beginning."""
    try:
        at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        at = datetime.datetime.min
    return at if at.tzinfo else at.replace(tzinfo=datetime.timezone.utc)
