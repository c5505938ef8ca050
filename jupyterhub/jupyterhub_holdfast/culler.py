"""For jupyterhub-idle-culler: a server with a running cell is not idle, however long nothing was heard of it.

    c.IdleCuller.cull_arbiter_hook = jupyterhub_holdfast.culler.idle

The culler's service needs the scope `access:servers` beside its own.
"""

from __future__ import annotations

import datetime
import logging
import os
from typing import Any, Optional

import aiohttp

_log = logging.getLogger("jupyterhub_holdfast.culler")


async def idle(*, inactive: Optional[datetime.timedelta], inactive_limit: float, server: dict[str, Any], **_: Any) -> bool:
    """The culler's own limit, and the server's own word that no kernel computes and no terminal was used. No answer: not idle."""
    if inactive is None or inactive.total_seconds() < inactive_limit:
        return False
    base = server.get("full_url") or os.environ.get("JUPYTERHUB_PUBLIC_HUB_URL", "").split("/hub/")[0] + server["url"]
    headers = {"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}"}
    try:
        async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=10)) as session:
            async with session.get(f"{base}api/kernels", allow_redirects=False) as response:
                response.raise_for_status()
                kernels = await response.json()
            async with session.get(f"{base}api/terminals", allow_redirects=False) as response:
                terminals = await response.json() if response.status == 200 else []  # 404: it has none
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        _log.warning("server %s is left alone, it does not say whether it is idle: %s", server.get("url"), error)
        return False
    if any(kernel.get("execution_state") == "busy" for kernel in kernels):
        return False
    now = datetime.datetime.now(datetime.timezone.utc)
    return all((now - _time(terminal["last_activity"])).total_seconds() >= inactive_limit for terminal in terminals)


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
