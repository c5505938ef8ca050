"""Many servers at the same time (HF_HUB_SERVERS: how many; each takes about 100 MB of this machine's memory)."""

import asyncio
import os
import statistics
import time

import kit
from local_hub import Server
from notebook import real

SERVERS = int(os.environ.get("HF_HUB_SERVERS", "6"))
AT_ONCE = 5  # first starts: each takes seconds of a core
LOOKS = 20  # a second, of all who wait together: the hub has work of its own
PATIENCE = 600


async def in_seconds(work):
    """How long it took."""
    at = time.monotonic()
    await work
    return time.monotonic() - at


async def waits_of(hub, until):
    """How long the hub takes to answer while it is busy."""
    waits = []
    while not until.is_set():
        waits.append(await in_seconds(hub.api("GET", "users?limit=1")))
        await asyncio.sleep(0.1)
    return waits


def tell(what, seconds):
    print(f"{what}: median {statistics.median(seconds):.1f} s, the longest {max(seconds):.1f} s")


@real
async def test_all_servers_are_suspended_and_resumed_in_one_go_and_the_hub_answers_meanwhile(hub):
    async with hub(f"cpu_guarantee=0.01 suspend_timeout={PATIENCE} start_timeout={PATIENCE} http_timeout={PATIENCE}") as h:
        servers = [Server(h, f"user-{number}", max(0.3, SERVERS / LOOKS)) for number in range(SERVERS)]
        kernels, turns = {}, asyncio.Semaphore(AT_ONCE)

        async def begin(server):
            async with turns:
                await server.create_user()
                await server.start(PATIENCE)
                kernels[server.user] = await server.new_kernel()
                await server.run(kernels[server.user], f"mine = '{server.user}'")

        async def goes_on(server):
            await server.start(PATIENCE)
            assert await server.run(kernels[server.user], "print(mine)") == f"{server.user}\n"

        await asyncio.gather(*(begin(server) for server in servers))
        until = asyncio.Event()
        answers = asyncio.ensure_future(waits_of(h, until))
        tell(f"{SERVERS} suspended at once", await asyncio.gather(*(in_seconds(server.stop(PATIENCE)) for server in servers)))
        assert kit.pods("component=singleuser-server") == []
        tell(f"{SERVERS} resumed at once", await asyncio.gather(*(in_seconds(goes_on(server)) for server in servers)))
        until.set()
        waits = await answers
        tell("an answer of the hub meanwhile", waits)
        assert max(waits) < 10, "the hub stood still"
