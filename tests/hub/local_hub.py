"""A real JupyterHub for tests: its process, its REST API, and what a browser does with a server: kernels and terminals."""

import asyncio
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import uuid

import aiohttp

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Wrong(AssertionError):
    """The hub or a server did not do what it should."""


async def wait(what, look, limit=60.0, every=0.3):
    """The first truthy value of look()."""
    loop = asyncio.get_running_loop()
    end, last = loop.time() + limit, None
    while True:
        try:
            value = await look()
            if value:
                return value
            last = None
        except (aiohttp.ClientError, asyncio.TimeoutError, Wrong, KeyError, ValueError) as error:
            last = error
        if loop.time() > end:
            raise Wrong(f"not within {limit:.0f} s: {what}" + (f" (last error: {last!r})" if last else ""))
        await asyncio.sleep(every)


class Hub:
    """`host`: an address of this machine that pods reach. Stopped and started again it is the same hub."""

    def __init__(self, folder, host, port, image, kubeconfig, proxy, settings=""):
        self.folder, self.url = pathlib.Path(folder), f"http://{host}:{port}"
        self.token = secrets.token_hex(16)
        self.env = {
            **os.environ, "HUB_HOST": host, "HUB_PORT": str(port), "HUB_IMAGE": image, "HUB_FOLDER": str(folder), "HUB_TOKEN": self.token,
            "HUB_PROXY": proxy, "HUB_SETTINGS": settings, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "jupyterhub"),
            "CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(16),
        }
        self.process = None
        self.session = None

    async def __aenter__(self):
        self.session = aiohttp.ClientSession(headers={"Authorization": f"token {self.token}"}, timeout=aiohttp.ClientTimeout(total=120))
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()
        await self.session.close()

    async def start(self):
        with open(self.folder / "hub.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(HERE / "jupyterhub_config.py")],
                cwd=self.folder, env=self.env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )
        await wait("the hub answers", lambda: self.api("GET", ""))

    async def stop(self):
        if self.process is None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, 20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def log(self):
        return (self.folder / "hub.log").read_text(errors="replace")

    async def api(self, method, path, expect=(200, 201, 202, 204), **kwargs):
        async with self.session.request(method, f"{self.url}/hub/api/{path}", **kwargs) as response:
            text = await response.text()
            if response.status not in expect:
                raise Wrong(f"{method} {path}: {response.status} {text[:500]}")
            return json.loads(text) if text else {"status": response.status}


class Server:
    """A user's server, as their browser sees it: through the hub's proxy."""

    def __init__(self, hub, user, look_every=0.3):
        self.hub, self.user, self.look_every = hub, user, look_every
        self.base = f"{hub.url}/user/{user}/"

    async def create_user(self):
        await self.hub.api("POST", f"users/{self.user}", expect=(201, 409))

    async def model(self):
        return (await self.hub.api("GET", f"users/{self.user}"))["servers"].get("", {})

    async def is_settled(self):
        return not (await self.model()).get("pending")

    async def start(self, limit=180, **options):
        await self.hub.api("POST", f"users/{self.user}/server", json=options)
        await self.wait_ready(limit)

    async def wait_ready(self, limit=180):
        async def ready():
            return (await self.model()).get("ready") and await self.get("api")
        await wait(f"{self.user}'s server is ready", ready, limit, self.look_every)

    async def why_not_started(self):
        """What the page of a start that failed says; empty while it has not."""
        async with self.hub.session.get(f"{self.hub.url}/hub/api/users/{self.user}/server/progress") as response:
            async for line in response.content:
                if line.startswith(b"data:"):
                    event = json.loads(line[5:])
                    if event.get("failed"):
                        return event.get("message", "") + event.get("html_message", "")
        return ""

    async def stop(self, limit=150):
        await self.hub.api("DELETE", f"users/{self.user}/server")

        async def gone():
            model = await self.model()
            return not model or (not model.get("ready") and not model.get("pending"))
        await wait(f"{self.user}'s server has stopped", gone, limit, self.look_every)

    async def request(self, method, path, **kwargs):
        async with self.hub.session.request(method, self.base + path, allow_redirects=False, **kwargs) as response:
            text = await response.text()
            if response.status >= 300:
                raise Wrong(f"{method} {path}: {response.status} {text[:300]}")
            return json.loads(text) if text else {}

    async def get(self, path):
        return await self.request("GET", path)

    async def new_kernel(self):
        return (await self.request("POST", "api/kernels", json={"name": "python3"}))["id"]

    async def run(self, kernel, code, limit=60):
        """What the cell prints."""
        async with self.channel(kernel) as channel:
            return await self.cell(channel, code, limit)

    def channel(self, kernel):
        return self.hub.session.ws_connect(f"{self.base}api/kernels/{kernel}/channels", heartbeat=5)

    async def cell(self, channel, code, limit=60):
        parent = uuid.uuid4().hex
        header = {"msg_id": parent, "msg_type": "execute_request", "username": self.user, "session": uuid.uuid4().hex, "version": "5.3", "date": ""}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        printed = ""
        await channel.send_json({"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content, "buffers": []})
        async with asyncio.timeout(limit):
            async for message in channel:
                if message.type != aiohttp.WSMsgType.TEXT:
                    break
                said = json.loads(message.data)
                if said["parent_header"].get("msg_id") != parent:
                    continue
                if said["msg_type"] == "stream":
                    printed += said["content"]["text"]
                if said["msg_type"] == "error":
                    raise Wrong("\n".join(said["content"]["traceback"]))
                if said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
                    return printed
        raise Wrong(f"the channel closed: {printed}")

    async def told(self):
        """What the home page has to tell of a server that is stopped."""
        model = await self.hub.api("GET", f"users/{self.user}?include_stopped_servers")
        return ((model["servers"].get("") or {}).get("state") or {}).get("holdfast_asleep", {})

    async def new_terminal(self):
        return (await self.request("POST", "api/terminals"))["name"]

    async def type(self, terminal, line, answer, limit=30):
        """Types the line, and waits until the terminal shows `answer`, which the line itself must not contain."""
        shown = ""
        async with self.hub.session.ws_connect(f"{self.base}terminals/websocket/{terminal}") as channel:
            await channel.send_json(["stdin", line + "\r"])
            async with asyncio.timeout(limit):
                async for message in channel:
                    kind, *rest = json.loads(message.data)
                    shown += rest[0] if kind == "stdout" else ""
                    if answer in shown:
                        return shown
        raise Wrong(f"the terminal closed: {shown}")
