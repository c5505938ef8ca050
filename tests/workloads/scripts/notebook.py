"""A Jupyter kernel (ipykernel 6) with variables, an array of 20 MB, a thread and a generator, asked over its ZeroMQ sockets by a client that
stays connected."""

import os

os.environ["IPYTHONDIR"] = "/data/ipython"
from jupyter_client.manager import start_new_kernel

import w

manager, client = start_new_kernel(kernel_name="python3")


def execute(code):
    """What the cell's last expression prints."""
    said = []

    def output(message):
        if message["msg_type"] == "execute_result":
            said.append(message["content"]["data"]["text/plain"])
        if message["msg_type"] == "error":
            w.expect("a cell", "\n".join(message["content"]["traceback"])[-400:], "")

    client.execute_interactive(code, timeout=60, output_hook=output)
    return said[0] if said else ""


execute("""
import hashlib, secrets, threading, time
nonce = secrets.token_hex(8)
data = bytearray(secrets.token_bytes(20 << 20))
digest = hashlib.sha256(data).hexdigest()
ticks = 0
def tick():
    global ticks
    while True:
        ticks += 1
        time.sleep(0.02)
threading.Thread(target=tick, daemon=True).start()
numbers = (n * n for n in range(10**9))
""")
kernel = execute("nonce")
cells = 0


def step():
    global cells
    cells += 1
    w.expect("the generator", execute("next(numbers)"), str((cells - 1) ** 2))
    w.expect("the array", execute("hashlib.sha256(data).hexdigest() == digest"), "True")
    return {"kernel": execute("nonce") == kernel, "history": execute("len(In) > 5")}, {"cells": cells, "thread": int(execute("ticks"))}


w.forever(step, 0.1)
