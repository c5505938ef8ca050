"""A KubeSpawner whose servers sleep.

Stopping a server (its user, the idle culler, an administrator) takes a final Checkpoint of its pod, and deletes the pod when that is stored.
Starting it creates the pod again from the same manifest, and Holdfast restores it from the checkpoint: the same kernels, variables,
terminals, history. A server whose node is drained goes the same way, by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, AsyncIterator, Awaitable, Optional

from jupyterhub import orm
from kubernetes_asyncio.client import ApiException
from kubespawner import KubeSpawner
from kubespawner.clients import shared_client
from traitlets import Bool, Enum, Float, Unicode, default

from .kept import FROM_CHECKPOINT, OWNER, POLICY, POLL_EVERY, PROTECT, Checkpoint, Keeper, Kept, Pod, SuspendFailed, said
from .kernels import touch
from .step import Anew, Resume, Step, Undo, Wait, next_step

DELETE_LIMIT = 30.0  # seconds, beyond a pod's grace


class ResumeFailed(Exception):
    """The server does not run; what is kept of it stays. JupyterHub shows the message on the user's page."""

    def __init__(self, message: str, fresh_url: str) -> None:
        super().__init__(message)
        self.jupyterhub_message = f"{message} Start it again to try again, or open {fresh_url} to give up its memory and start anew."


class HoldfastSpawner(KubeSpawner):
    suspend_on_stop = Bool(
        True,
        config=True,
        help="""Whether stopping a server keeps its memory. False: it is stopped as KubeSpawner does; drains are survived all the same.""",
    )
    suspend_timeout = Float(
        100.0,
        config=True,
        help="""Seconds for a checkpoint, from the request until it is stored. After it the server runs on.""",
    )
    resume_timeout = Float(
        config=True,
        help="""Seconds for a resume, scheduling included. Below start_timeout, so that the hub hears of it from us. Default: 15 s less.""",
    )
    on_suspend_failure = Enum(
        ["keep", "stop"],
        "keep",
        config=True,
        help="""What becomes of a server of which no checkpoint can be made when it is to stop. keep: its pod runs on, and the next start
        finds it. stop: it is stopped, and its memory is lost.""",
    )
    follow_drains = Bool(
        True,
        config=True,
        help="""Whether a server whose pod was evicted (drain, spot reclaim, preemption) is brought back on another node at once. False:
        it sleeps until its user starts it.""",
    )

    policy = Unicode(
        "jupyterhub",
        config=True,
        help="""The RestorePolicy of the servers' namespace that holds for them (rbac.yaml has it: a server whose memory cannot be restored
        is held, and never started without it). Empty: Holdfast's built-in one, which starts such a server without its memory.""",
    )

    @default("resume_timeout")
    def _default_resume_timeout(self) -> float:
        return max(5.0, float(self.start_timeout) - 15.0)

    @default("poll_interval")
    def _default_poll_interval(self) -> int:
        return 5  # from a cache: so soon an evicted server is brought back

    user_options: dict[str, Any]
    _replaces: str = ""  # uid of the pod that had the server's name when this start began
    _created: bool = False
    _started_anew: bool = False
    _noted: str = ""  # uid of the pod that the Secret is known to name
    _move_failed: bool = False
    _until: float = 0.0  # by the loop's clock: when a start is given up
    _resuming: Optional[tuple[Kept, Checkpoint]] = None
    _allowed_scopes: Optional[list[str]] = None
    _moving: Optional[asyncio.Task[None]] = None
    # What the home page tells: {"since": RFC 3339, "size": text} of what sleeps, or {"failure": why it could not be suspended}.
    _asleep: Optional[dict[str, str]] = None

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        if self._asleep:
            state["holdfast_asleep"] = self._asleep
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        asleep = state.get("holdfast_asleep")
        self._asleep = {str(key): str(value) for key, value in asleep.items()} if isinstance(asleep, dict) else None

    @property
    def _keeper(self) -> Keeper:
        return Keeper(self.api, shared_client("CustomObjectsApi"), self.namespace, self.k8s_api_request_timeout)

    @property
    def _owner(self) -> str:
        return f"{self.user.id}/{self.user.orm_user.created.isoformat()}/{self.name}"

    def _pod(self) -> Optional[dict[str, Any]]:
        reflector = self.pod_reflector
        return reflector.pods.get(f"{self.namespace}/{self.pod_name}") if reflector else None

    async def _load(self) -> Optional[Kept]:
        kept = await self._keeper.load(self.pod_name)
        if kept is None or kept.owner == self._owner:
            return kept
        # Of another user who had this name, or of a hub whose database was lost: never theirs, and nobody's to delete.
        aside = await self._keeper.set_aside(self.pod_name, kept)
        self.log.warning("%s was another user's: it is Secret %s now, and its checkpoints stay", self._keeper.secret_of(self.pod_name), aside)
        return None

    # --- stop ---------------------------------------------------------------------------------------------------------------------------

    async def stop(self, now: bool = False) -> None:
        if now:  # KubeSpawner makes room, or cleans up what has ended
            await super().stop(now=True)
            return
        await self._stop_moving()
        # A server that was started anew and never answered has nothing to keep.
        if not self.suspend_on_stop or (self._started_anew and self._waiting_for_response):
            await self._delete_pod()
            return
        try:
            kept = await self._load()
            pod = await self._keeper.pod(self.pod_name)
            if kept is not None and pod is not None and not await self._has_memory(kept, pod):
                self.will_resume = bool(kept.pod_uid)
                await self._delete_pod()
                return
            if pod is None or pod.terminating:
                await self._delete_pod()
                return
            if kept is None or pod.owner != kept.owner:
                raise SuspendFailed("it was not started by this spawner, or has not been since")
            self.will_resume = True  # else the hub deletes its token, whatever fails from now on
            await self._note(kept, pod.uid)
            await self._keeper.drop_used(pod.uid)
            checkpoint = await self._keeper.suspend(self.pod_name, pod.uid, self.suspend_timeout)
        except (SuspendFailed, ApiException) as error:
            self.log.warning("server %s was not suspended: %s", self._log_name, said(error))
            if self.on_suspend_failure == "stop":
                self.will_resume = False
                await self._delete_pod()
                return
            self.will_resume = True
            self._asleep = {"failure": said(error)}
            return
        self._asleep = _told(checkpoint)
        await self._delete_pod(frozen=True)
        self.log.info("server %s sleeps: Checkpoint %s, %s", self._log_name, checkpoint.name, checkpoint.size)

    async def _has_memory(self, kept: Kept, pod: Pod) -> bool:
        """Whether deleting the pod would lose something: its processes run, or ran as far as the API server knows."""
        if pod.terminating or not pod.alive:
            return False
        if pod.runs:
            return True
        return any(c.claimed_by == pod.uid and not c.undecided for c in await self._keeper.checkpoints(kept.pod_uid))

    async def _delete_pod(self, frozen: bool = False) -> None:
        """With the pod's own grace. A frozen one never runs again, so it need not be waited for where its node does not answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.delete_grace_period + DELETE_LIMIT
        while frozen and loop.time() < until:
            try:
                await asyncio.wait_for(super().stop(now=False), until - loop.time())
                return
            except asyncio.TimeoutError:
                break
            except (ApiException, OSError) as error:
                self.log.warning("server %s: its pod cannot be deleted yet: %s", self._log_name, said(error))
                await asyncio.sleep(POLL_EVERY)
        await super().stop(now=frozen)

    # --- start --------------------------------------------------------------------------------------------------------------------------

    def start(self) -> "asyncio.Future[str]":
        self._start_future = asyncio.ensure_future(self._start_or_resume())
        return self._start_future

    async def _start_or_resume(self) -> str:
        await self._start_watching_pods()
        self._budget()
        self._started_anew = self._move_failed = False
        try:
            kept = await self._load()
            if self._wants_fresh():
                await super().stop(now=True)
                if kept is not None:
                    await self._keeper.forget(self.pod_name, kept.pod_uid)
                kept = None
            step = await self._decide(kept)
        except ApiException as error:
            raise self._resume_failed("what is kept of it", said(error)) from error
        if isinstance(step, Anew) or kept is None:
            url = await self._start_anew()
        elif isinstance(step, Resume):
            url = await self._resume(kept, step.checkpoint)
        else:
            url = await self._adopt(kept)
        self._asleep = None
        return url

    def _budget(self) -> None:
        self._until = asyncio.get_running_loop().time() + self.resume_timeout

    async def _decide(self, kept: Optional[Kept]) -> Step:
        """What next_step says, as soon as it is no Wait. Changes nothing but a suspension that was given up."""
        while True:
            pod = await self._keeper.pod(self.pod_name)
            checkpoints = await self._keeper.checkpoints(kept.pod_uid) if kept is not None and kept.pod_uid else []
            step = next_step(kept, self._owner, pod, checkpoints)
            self._replaces = pod.uid if pod is not None else ""
            if isinstance(step, Undo):
                await self._keeper.delete_checkpoint(step.checkpoint.name)
                continue
            if not isinstance(step, Wait):
                return step
            if asyncio.get_running_loop().time() >= self._until:
                raise self._resume_failed("what is kept of it", step.why)
            await asyncio.sleep(POLL_EVERY)

    def _resume_failed(self, what: str, why: str) -> ResumeFailed:
        name = "/" + self.name if self.name else ""
        fresh = f"{self.hub.base_url}spawn/{self.user.escaped_name}{name}?fresh=1"
        return ResumeFailed(f"The server could not be resumed from {what}: {why.rstrip('.')}.", fresh)

    def _wants_fresh(self) -> bool:
        """Asked for with ?fresh=1, or by the option `fresh`; for this start only."""
        options: dict[str, Any] = dict(self.user_options or {})
        fresh = bool(options.pop("fresh", False))
        if fresh:
            self.user_options = options
            self.orm_spawner.user_options = options
            self.db.commit()
        if self.handler is not None:
            fresh = fresh or self.handler.get_query_argument("fresh", "") not in ("", "0")
        return fresh

    async def _start_anew(self) -> str:
        self._started_anew = True
        url = str(await super()._start())
        for _ in range(5):  # nothing else tells which pod it is
            await self._note_running()
            if self._noted:
                break
            await asyncio.sleep(POLL_EVERY)
        return url

    async def _reuse_token(self, kept: Kept) -> None:
        self._allowed_scopes = list(await self._get_oauth_client_allowed_scopes())
        self.api_token = kept.token

    async def _adopt(self, kept: Kept) -> str:
        """It ran on, since it could not be suspended, or was started by a hub that died."""
        await self._reuse_token(kept)
        url = await self._within(self._until_running(), "its pod")
        await self._note_running()
        self.log.info("server %s ran on: its pod is used again", self._log_name)
        return url

    async def _until_running(self) -> str:
        while not self.is_pod_running(self._pod()):
            await asyncio.sleep(POLL_EVERY)
        return str(self._get_pod_url(self._pod()))

    async def _resume(self, kept: Kept, checkpoint: Checkpoint) -> str:
        await self._reuse_token(kept)
        self._resuming = (kept, checkpoint)
        try:
            url = await self._within(self._start_until_it_stays(), f"Checkpoint {checkpoint.name}")
        finally:
            self._resuming = None
        # From here on the pod has the memory: whatever fails, it is not deleted.
        await self._note_running()
        await self._touch(url)
        self.log.info("server %s goes on from Checkpoint %s", self._log_name, checkpoint.name)
        # While it is not written down whose memory the new pod has, the checkpoint is what tells.
        if await self._restored_from(checkpoint) and self._noted not in ("", self._replaces):
            with contextlib.suppress(ApiException):
                await self._keeper.delete_checkpoint(checkpoint.name)
        return url

    async def _start_until_it_stays(self) -> str:
        """A drain that asks again, by name, for the eviction of the pod before may hit this one, while it has not been restored yet."""
        while True:
            self._created = False
            start = asyncio.ensure_future(super()._start())
            try:
                while not start.done() and not (self._created and await self._vanished()):
                    await asyncio.wait({start}, timeout=2 * POLL_EVERY)
                if start.done():
                    return str(start.result())
                self.log.warning("server %s: its pod was deleted before it was restored, and is created again", self._log_name)
            finally:
                start.cancel()

    async def _vanished(self) -> bool:
        try:
            pod = await self._keeper.pod(self.pod_name)
        except ApiException:
            return False
        return pod is None or pod.terminating

    async def _within(self, start: Awaitable[str], what: str) -> str:
        try:
            return str(await asyncio.wait_for(start, max(1.0, self._until - asyncio.get_running_loop().time())))
        except Exception as error:
            raise self._resume_failed(what, await self._why(error)) from error

    async def _restored_from(self, checkpoint: Checkpoint) -> bool:
        """Whether Holdfast says so, which it does a moment after the pod runs."""
        for _ in range(10):
            with contextlib.suppress(ApiException):
                now = await self._keeper.checkpoint(checkpoint.name)
                if now is None or now.outcome:
                    if now is not None and now.outcome != "Restored":
                        self.log.error("server %s started without its memory: %s", self._log_name, now.outcome_reason)
                    return now is not None and now.outcome == "Restored"
            await asyncio.sleep(POLL_EVERY)
        self.log.warning("server %s: Holdfast has not said that it goes on from Checkpoint %s, which is left", self._log_name, checkpoint.name)
        return False

    async def _note_running(self) -> None:
        """Which pod has the memory now. Where it cannot be written down, poll() does it later."""
        found = self._pod()
        pod = Pod.of(found) if found is not None else None
        if pod is None or pod.uid == self._noted:
            return
        try:
            kept = await self._load()
            if kept is not None and kept.owner == pod.owner:
                await self._note(kept, pod.uid)
            self._noted = pod.uid
        except ApiException as error:
            self.log.warning("server %s: the uid of its pod is not written down yet: %s", self._log_name, said(error))

    async def _look_at_what_runs(self) -> None:
        """Once for each pod: what a hub that died has left undone. A suspension that it began is given up, since the server is shown as running."""
        pod = self._pod()
        if self._stop_pending or not self.is_pod_running(pod) or pod is None or pod["metadata"]["uid"] == self._noted:
            return
        try:
            for checkpoint in await self._keeper.checkpoints(pod["metadata"]["uid"]):
                if checkpoint.holds_state and checkpoint.trigger == "Suspend":
                    await self._keeper.delete_checkpoint(checkpoint.name)
        except ApiException as error:
            self.log.warning("server %s: its checkpoints cannot be read yet: %s", self._log_name, said(error))
            return
        await self._note_running()

    async def _note(self, kept: Kept, uid: str) -> None:
        if kept.pod_uid != uid:
            await self._keeper.save(self.pod_name, Kept(kept.manifest, uid, kept.owner))

    async def _why(self, error: BaseException) -> str:
        """What holds the pod up, in the words of its newest warning or of the scheduler."""
        pod = self._pod()
        for condition in (pod or {}).get("status", {}).get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and condition.get("message"):
                return str(condition["message"])
        warnings = [str(event.get("message")) for event in reversed(self.events) if event.get("type") == "Warning"]
        if warnings:  # "Error: ErrImagePull" comes after the one that says of which image
            return next((text for text in warnings if not text.startswith("Error: ")), warnings[0])
        return said(error)

    async def _touch(self, url: str) -> None:
        try:
            count = await asyncio.wait_for(touch(url.rstrip("/") + self.server.base_url, self.api_token), 5)
            self.log.info("server %s: %d kernels are in use again", self._log_name, count)
        except Exception as error:  # whatever the user's server answers
            self.log.warning("server %s: its kernels may be culled as idle: %s", self._log_name, error)

    async def _make_create_pod_request(self, pod: Any, request_timeout: float) -> bool:
        """The last place before the API server. What sleeps is created again as it was, not as today's configuration has it.

        False: to be tried again.
        """
        try:
            if self._resuming is not None:
                body = _with_annotations(self._resuming[0].manifest, {FROM_CHECKPOINT: self._resuming[1].name})
            else:
                ours = {OWNER: self._owner, **({POLICY: self.policy} if self.policy else {PROTECT: "true"})}
                body = _with_annotations(self.api.api_client.sanitize_for_serialization(pod), ours)
                await self._keeper.save(self.pod_name, Kept(body, "", self._owner))
            await self._keeper.create_pod(body)
            self._created = True
            return True
        except ApiException as error:
            if error.status == 0:
                return False
            if error.status != 409:
                self.log.error("server %s: its pod cannot be created: %s", self._log_name, said(error))
                raise
        there = await self._keeper.pod(self.pod_name)
        if there is not None and there.owner == self._owner and there.uid != self._replaces and there.alive:
            self._created = True  # by an earlier try, whose answer was lost
            return True
        self.log.info("server %s: another pod has its name, and is deleted", self._log_name)
        await super().stop(now=True)
        return False

    def start_polling(self) -> Any:
        # JupyterHub has just registered the OAuth client anew for the old token, without its scopes.
        if self._allowed_scopes is not None and self.orm_spawner.oauth_client is not None:
            self.orm_spawner.oauth_client.allowed_scopes = self._allowed_scopes
            self._allowed_scopes = None
            self.db.commit()
        return super().start_polling()

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        told = False
        async for event in super().progress():
            if self._resuming is not None and not told:
                told = True
                checkpoint = self._resuming[1]
                yield {"progress": 10, "message": f"Resuming {checkpoint.size or 'the server'}, asleep since {checkpoint.completed_at}"}
            yield event

    # --- behind the hub's back ----------------------------------------------------------------------------------------------------------

    async def poll(self) -> Optional[int]:
        if self._start_future is not None and not self._start_future.done():
            return None
        if self._moving is not None and not self._moving.done():
            return None
        status: Optional[int] = await super().poll()
        if status is None:
            await self._look_at_what_runs()
            return None
        try:
            kept = await self._load()
            if kept is None or not kept.pod_uid:
                return status
            checkpoints = await self._keeper.checkpoints(kept.pod_uid)
        except ApiException as error:
            self.log.warning("server %s: what is kept of it cannot be read: %s", self._log_name, said(error))
            return None  # else the hub deletes a token that its processes still hold
        held = next((c for c in checkpoints if c.holds_state), None)
        if held is None:
            self.will_resume = any(c.undecided for c in checkpoints)
            return status
        self.will_resume = True
        if self._stop_pending:
            return status
        if not self.follow_drains or held.trigger == "Suspend" or self.server is None or self._move_failed:
            self._asleep = _told(held) if held.phase == "Ready" else None
            return status
        if held.phase == "Ready":
            self.log.info("server %s was evicted: it is brought back from Checkpoint %s", self._log_name, held.name)
            self._moving = asyncio.ensure_future(self._move(kept, held))
        return None

    async def _move(self, kept: Kept, checkpoint: Checkpoint) -> None:
        try:
            self._budget()
            self._replaces = kept.pod_uid
            url = await self._resume(kept, checkpoint)
            self._allowed_scopes = None  # the hub has not touched the OAuth client
            await super().poll()  # writes the new address down
            proxy = self.user.settings.get("proxy")
            if proxy is not None:
                await proxy.add_user(self.user, self.name)
            self.log.info("server %s is at %s now", self._log_name, url)
        except Exception as error:
            self._move_failed = True
            self.log.error("server %s sleeps, it could not be brought back: %s", self._log_name, error)
            with contextlib.suppress(ApiException):
                pod = await self._keeper.pod(self.pod_name)
                if pod is not None and not await self._has_memory(kept, pod):
                    await self._delete_pod()

    async def _stop_moving(self) -> None:
        if self._moving is not None and not self._moving.done():
            self._moving.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._moving
        self._moving = None

    async def delete_forever(self) -> None:
        """The user, or the named server, is deleted: so is all that is kept."""
        kept = await self._load()
        if kept is not None:
            await self._keeper.forget(self.pod_name, kept.pod_uid)
        await super().delete_forever()


def _with_annotations(manifest: dict[str, Any], more: dict[str, str]) -> dict[str, Any]:
    meta = dict(manifest["metadata"])
    meta["annotations"] = {**(meta.get("annotations") or {}), **more}
    return {**manifest, "metadata": meta}


def _told(checkpoint: Checkpoint) -> dict[str, str]:
    return {"since": checkpoint.completed_at, "size": checkpoint.size}
