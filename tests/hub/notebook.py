"""A notebook with state (a kernel with variables and a thread, a terminal, an open file), and whether it is still the same."""

import asyncio
import functools

import kit
from local_hub import wait

VARIABLES = """
import hashlib, os, threading, time, numpy
big = numpy.random.default_rng(7).random(MB * 131072)
digest = hashlib.blake2b(big.tobytes()).hexdigest()
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.05)
threading.Thread(target=tick, daemon=True).start()
note = open('/home/work/note.txt', 'w'); note.write('first line'); note.flush()
print(os.getpid(), digest)
"""
LOOK = "import hashlib, os; print(os.getpid(), hashlib.blake2b(big.tobytes()).hexdigest()); assert 'tick' in In[1]"


def real(scenario):
    @functools.wraps(scenario)
    def run(hub):
        made = []

        def remember(*args, **kwargs):
            made.append(hub(*args, **kwargs))
            return made[-1]

        try:
            asyncio.run(scenario(remember))
        except BaseException:
            for each in made:
                print(each.log()[-12000:])
            for each in kit.pods("component=singleuser-server"):
                print(f"--- {each['metadata']['name']}:", kit.kubectl("logs", each["metadata"]["name"], "--tail=60", check=False))
            raise
    del run.__wrapped__  # its argument is the fixture's
    return run


def pod(user="alice"):
    found = [p for p in kit.pods("component=singleuser-server") if p["metadata"]["annotations"]["hub.jupyter.org/username"] == user]
    return found[0] if found else None


async def open_notebook(server, mb=100):
    await server.create_user()
    if not (await server.model()).get("ready"):
        await server.start()
    kernel = await server.new_kernel()
    before = await server.run(kernel, VARIABLES.replace("MB", str(mb)))
    terminal = await server.new_terminal()
    await server.type(terminal, "export KEPT=this; echo $((40+2))", "42")
    return kernel, before, terminal


async def assert_same(server, kernel, before, terminal):
    assert kernel in [k["id"] for k in await server.get("api/kernels")], "the kernel is gone: a cold start"
    assert await server.run(kernel, LOOK) == before
    first = int(await server.run(kernel, "print(ticks)"))
    await wait("the kernel's thread goes on", lambda: ticks_after(server, kernel, first))
    await server.type(terminal, "echo $KEPT-$((40+3))", "this-43")
    await server.run(kernel, "note.write(' second'); note.flush(); assert open('/home/work/note.txt').read().startswith('first line')")


async def ticks_after(server, kernel, first):
    return int(await server.run(kernel, "print(ticks)")) > first
