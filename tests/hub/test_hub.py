"""Servers of a real JupyterHub that sleep, move and come back (scripts/hub.sh runs it: it needs a virtual environment and an image)."""

import asyncio
import contextlib
import json
import time

import aiohttp
import kit
import pytest
from local_hub import Server, Wrong, wait
from notebook import assert_same, open_notebook, pod, real


@real
async def test_a_stopped_server_sleeps_and_goes_on_with_kernel_variables_and_terminal(hub):
    async with hub() as h:
        server = Server(h, "alice")
        state = await open_notebook(server)
        for _ in range(2):
            at = time.monotonic()
            await server.stop()
            asleep = time.monotonic() - at
            assert pod() is None
            at = time.monotonic()
            await server.start()
            print(f"suspended in {asleep:.1f} s, resumed in {time.monotonic() - at:.1f} s")
            await assert_same(server, *state)


@real
async def test_a_hub_that_was_started_anew_resumes_what_slept_before(hub):
    async with hub() as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        await server.stop()
        await h.stop()
        await h.start()
        await server.start()
        await assert_same(server, *state)
        await h.stop()  # and while it runs
        await h.start()
        await wait("the server is known", server.model)
        await assert_same(server, *state)


@real
async def test_a_drain_of_its_node_moves_the_server(hub):
    async with hub() as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        node = pod()["spec"]["nodeName"]
        try:
            await asyncio.to_thread(kit.kubectl, "drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s", timeout=90)
            await wait("it runs elsewhere", lambda: asyncio.to_thread(lambda: pod() and pod()["spec"].get("nodeName") not in (None, node)))
            await server.wait_ready()
            await assert_same(server, *state)
        finally:
            kit.kubectl("uncordon", node)


async def type_cells(server, kernel, answered, until):
    """As somebody at an open notebook: one cell after the other; one without an answer is sent again when the notebook is connected again."""
    while not until.is_set():
        with contextlib.suppress(Wrong, aiohttp.ClientError, TimeoutError, ValueError):  # of ValueError: what it printed did not come through
            async with server.channel(kernel) as channel:
                while not until.is_set():
                    number = len(answered)
                    said = await server.cell(channel, f"{number} in typed or typed.append({number}); print(typed[-1])", limit=20)
                    assert int(said) == number
                    answered.append(time.monotonic())
        await asyncio.sleep(0.2)


@real
async def test_a_drain_while_somebody_types_loses_nothing_that_was_executed(hub):
    async with hub() as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        kernel, node = state[0], pod()["spec"]["nodeName"]
        await server.run(kernel, "typed = []")
        answered, until = [], asyncio.Event()
        typing = asyncio.ensure_future(type_cells(server, kernel, answered, until))
        try:
            await wait("it types", lambda: asyncio.sleep(0, len(answered) >= 20))
            await asyncio.to_thread(kit.kubectl, "drain", node, "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s", timeout=90)
            await wait("it runs elsewhere", lambda: asyncio.to_thread(lambda: pod() and pod()["spec"].get("nodeName") not in (None, node)))
            before = len(answered)
            await wait("it goes on typing", lambda: asyncio.sleep(0, len(answered) >= before + 20))
        finally:
            until.set()
            await typing
            kit.kubectl("uncordon", node)
        gap = max(later - earlier for earlier, later in zip(answered, answered[1:]))
        print(f"{len(answered)} cells, the longest wait for an answer {gap:.1f} s")
        assert json.loads(await server.run(kernel, "print(typed)")) == list(range(len(answered)))
        await assert_same(server, *state)


@real
async def test_a_fresh_start_forgets_what_was_kept(hub):
    async with hub() as h:
        server = Server(h, "alice")
        kernel, _, _ = await open_notebook(server, 10)
        await server.stop()
        await server.start(fresh=True)
        assert kernel not in [k["id"] for k in await server.get("api/kernels")]
        assert [c for c in kit.checkpoints() if "deletionTimestamp" not in c["metadata"]] == []
        second = await server.new_kernel()
        await server.stop()
        await server.start()  # asked for once
        assert second in [k["id"] for k in await server.get("api/kernels")]


@real
async def test_a_server_that_cannot_be_suspended_runs_on_and_is_found_again(hub):
    async with hub("suspend_timeout=20") as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        uid = pod()["metadata"]["uid"]
        kit.kubectl("scale", "statefulset/holdfast-store", "--replicas=0", "-n", kit.SYSTEM)
        try:
            kit.wait("no store", lambda: not kit.component_pods("store"))
            await server.stop()
            assert pod()["metadata"]["uid"] == uid, "its pod was deleted without a checkpoint"
            assert (await server.told())["failure"], "nobody was told"
        finally:
            kit.kubectl("scale", "statefulset/holdfast-store", "--replicas=1", "-n", kit.SYSTEM)
            kit.kubectl("rollout", "status", "statefulset/holdfast-store", "-n", kit.SYSTEM, "--timeout=90s")
        await server.start()
        assert pod()["metadata"]["uid"] == uid
        await assert_same(server, *state)


@real
async def test_nobody_gets_what_was_kept_of_another_user_of_that_name(hub):
    async with hub() as h:
        server = Server(h, "alice")
        kernel, _, _ = await open_notebook(server, 10)
        await server.stop()
        kept = kit.kubectl("get", "secrets", "-o", "name", "-l", "app.kubernetes.io/managed-by=jupyterhub-holdfast")
        assert kept.strip(), "nothing is kept"
        await h.api("DELETE", "users/alice")
        assert not kit.kubectl("get", "secrets", "-o", "name", "-l", "app.kubernetes.io/managed-by=jupyterhub-holdfast").strip(), "what was kept outlived its user"
        await server.create_user()
        await server.start()
        assert kernel not in [k["id"] for k in await server.get("api/kernels")]


@real
async def test_a_resume_without_room_says_so_and_loses_nothing(hub):
    async with hub("resume_timeout=15") as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        await server.stop()
        for node in kit.WORKERS:
            kit.kubectl("cordon", node)
        try:
            with pytest.raises(Wrong, match="could not be resumed|is ready"):
                await server.start(limit=20)
                raise AssertionError("it runs on a cordoned node")
            why = await wait("the page says why", server.why_not_started)
            assert "could not be resumed" in why and "nodes are available" in why and "fresh=1" in why, why
        finally:
            for node in kit.WORKERS:
                kit.kubectl("uncordon", node)
        await wait("the failed start is over", server.is_settled)
        await server.start()
        await assert_same(server, *state)
