"""What may go wrong while a server is suspended: its user is told, and nothing is lost."""

import asyncio
import os
import pathlib

import faults
import kit
import pytest
from local_hub import Server, Wrong, wait
from notebook import assert_same, open_notebook, pod, real


@real
async def test_a_node_that_is_cut_off_while_it_suspends_loses_nothing(hub):
    async with hub("suspend_timeout=15") as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        node = pod()["spec"]["nodeName"]
        try:
            with faults.held(node, "agent.dumped") as hold:
                stopping = asyncio.ensure_future(server.stop(limit=120))
                await asyncio.to_thread(hold.wait)
                kit.cut_off(node)
            await stopping
            told = await server.told()
        finally:
            kit.connect_again(node)
        assert "failure" in told, told
        await wait("the node is back", lambda: asyncio.to_thread(kit.node_is_ready, node))
        await server.start(limit=120)
        await assert_same(server, *state)


@real
async def test_a_resume_whose_image_is_gone_names_it_and_loses_nothing(hub):
    async with hub("resume_timeout=15") as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        image = pod()["spec"]["containers"][0]["image"]
        await server.stop()
        for node in kit.WORKERS:
            kit.on_node(node, "ctr", "-n", "k8s.io", "images", "rm", "--sync", image)
        try:
            with pytest.raises(Wrong, match="could not be resumed|is ready"):
                await server.start(limit=20)
                raise AssertionError("it runs without its image")
            why = await wait("the page says why", server.why_not_started)
            assert "could not be resumed" in why and image in why, why
        finally:
            for node in kit.WORKERS:
                kit.load_image(node, pathlib.Path(os.environ["HUB_IMAGE_TAR"]), image)
        await wait("the failed start is over", server.is_settled)
        await server.start()
        await assert_same(server, *state)


@real
async def test_a_server_whose_token_was_revoked_while_it_slept_goes_on_and_is_let_in_again(hub):
    async with hub() as h:
        server = Server(h, "alice")
        state = await open_notebook(server, 10)
        await server.stop()
        tokens = (await h.api("GET", "users/alice/tokens"))["api_tokens"]
        own = [token["id"] for token in tokens if "/user/alice/" in token["note"]]
        assert own, tokens
        for token in own:
            await h.api("DELETE", f"users/alice/tokens/{token}")
        await server.start()
        await assert_same(server, *state)  # each request asks the hub, with the server's own token
