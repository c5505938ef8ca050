"""After a resume every kernel has been idle for as long as the server slept, by the wall clock that idle culling inside of the server goes
by. Each is made to say something, so that it counts as used now. An empty silent request: no output, no history, no variable changes."""

from __future__ import annotations

import json
import uuid
from typing import Any

import aiohttp


def _request() -> dict[str, Any]:
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "hub",
        "session": uuid.uuid4().hex,
        "version": "5.3",
        "date": "",
    }
    content = {"code": "", "silent": True, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content, "buffers": []}


async def touch(base: str, token: str, timeout: float = 5) -> int:
    """`base`: the server's URL with its prefix. Returns how many kernels answered. A kernel that computes answers later: that is use, too."""
    answered = 0
    limit = aiohttp.ClientTimeout(total=timeout)
    async with aiohttp.ClientSession(headers={"Authorization": f"token {token}"}, timeout=limit) as session:
        async with session.get(f"{base}api/kernels") as response:
            response.raise_for_status()
            kernels = await response.json()
        for kernel in kernels:
            if kernel.get("execution_state") == "busy":
                continue
            async with session.ws_connect(f"{base}api/kernels/{kernel['id']}/channels") as channel:
                await channel.send_json(_request())
                for _ in range(8):  # status messages come before the reply
                    message = await channel.receive(timeout=timeout)
                    if message.type != aiohttp.WSMsgType.TEXT:
                        break
                    if json.loads(message.data).get("msg_type") == "execute_reply":
                        answered += 1
                        break
    return answered
