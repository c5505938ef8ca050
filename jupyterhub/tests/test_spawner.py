"""The spawner under a hub that starts, stops, polls and dies in any order, while calls of the Kubernetes API fail: no memory is lost."""

import asyncio
import contextlib
import datetime
import types

import jupyterhub_holdfast.spawner as module
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubespawner import KubeSpawner
from world import World, run

START_TIMEOUT = 60.0


class Spawner(module.HoldfastSpawner):
    """With a manifest of its own, and the world's pod in place of the cache."""

    server = None
    world = None
    pod_name = "jupyter-alice"  # KubeSpawner: from a template
    db = types.SimpleNamespace(commit=lambda: None)
    api = None

    def __init__(self, world, token):
        super(KubeSpawner, self).__init__(user=types.SimpleNamespace(id=1, name="alice", escaped_name="alice", settings={}, url="/user/alice/",
                                                                     orm_user=types.SimpleNamespace(created=datetime.datetime(2026, 1, 1))))
        self.world = self.api = world
        self._start_future = None
        self.namespace, self.events_enabled, self.start_timeout, self.k8s_api_request_timeout = "hub", False, START_TIMEOUT, 3
        self.api_token, self.hub, self.handler = token, types.SimpleNamespace(base_url="/hub/"), None
        self.orm_spawner = types.SimpleNamespace(name="", user_options=None, oauth_client=None, server=None, state=None)

    async def load_user_options(self):
        pass

    async def _start_watching_pods(self, replace=False):
        pass

    @property
    def pod_reflector(self):
        return types.SimpleNamespace(pods={"hub/jupyter-alice": self.world.seen} if self.world.seen else {})

    async def get_pod_manifest(self):
        return {"metadata": {"name": self.pod_name}, "spec": {"containers": [{"name": "notebook", "env": [{"name": "JUPYTERHUB_API_TOKEN", "value": self.api_token}]}]}}

    async def _get_oauth_client_allowed_scopes(self):
        return []

    def _get_pod_url(self, pod):
        return "http://10.0.0.1:8888"

    def get_state(self):
        return {"holdfast_asleep": self._asleep} if self._asleep else {}

    def load_state(self, state):
        self._asleep = state.get("holdfast_asleep")


class Hub:
    """The calls of jupyterhub.user.User.spawn and stop, in their order, and what JupyterHub has written down when it dies."""

    def __init__(self, world):
        self.world, self.spawner, self.state, self.running, self.tokens = world, None, {}, False, 0
        self.task = None

    def _spawner(self):
        if self.spawner is None:
            self.tokens += 1
            self.spawner = Spawner(self.world, f"t{self.tokens}")
            self.spawner.load_state(self.state)
        return self.spawner

    async def start(self):
        spawner = self._spawner()
        self.running = True  # as it is written down: `pending`
        spawner.server = types.SimpleNamespace(url="http://10.0.0.1:8888/", ip="10.0.0.1", port=8888, base_url="/user/alice/")
        try:
            spawner._start_pending = True
            await asyncio.wait_for(spawner.start(), START_TIMEOUT)
        except Exception:
            with contextlib.suppress(Exception):
                await self.stop()
            raise
        finally:
            spawner._start_pending = False
        self.state = spawner.get_state()

    async def stop(self):
        spawner = self._spawner()
        spawner._start_pending, spawner._stop_pending = False, True
        try:
            if await spawner.poll() is None:
                await spawner.stop()
        finally:
            if self.spawner is spawner:  # else it is dead
                spawner.server = None
                self.state, self.spawner, self.running = spawner.get_state(), None, False

    async def polls(self):
        while True:
            await asyncio.sleep(5)
            spawner = self.spawner
            if spawner is not None and self.running and not spawner._start_pending and not spawner._stop_pending:
                with contextlib.suppress(Exception):
                    if await spawner.poll() is not None and not spawner._stop_pending:
                        await self.stop()

    def die(self):
        if self.spawner is not None:
            tasks, self.spawner = (self.spawner._start_future, self.spawner._moving), None
            for task in tasks:
                if task is not None:
                    task.cancel()

    async def come_back(self):
        spawner = self._spawner()
        if self.running:
            spawner.server = types.SimpleNamespace(url="http://10.0.0.1:8888/", ip="10.0.0.1", port=8888, base_url="/user/alice/")
            try:
                status = await spawner.poll()
            except Exception:
                status = -1
            if status is not None:
                with contextlib.suppress(Exception):
                    await self.stop()
        else:
            self.spawner = None


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    async def touched(*_):
        return 1

    monkeypatch.setattr(module, "touch", touched)


ACTIONS = st.sampled_from(["start", "stop", "drain", "evict again", "hub dies", "wait", "no room", "room", "store down", "store up"])
CALLS = sorted(name for name in vars(World) if "_namespaced_" in name)
FAULTS = st.dictionaries(st.sampled_from(CALLS), st.lists(st.sampled_from([None, "refused", "lost", "unreachable"]), min_size=1, max_size=6))


async def history(actions, first_faults):
    world = World()
    hub = Hub(world)
    module.shared_client = lambda _: world
    around = [asyncio.ensure_future(world.live()), asyncio.ensure_future(hub.polls())]
    await hub.start()
    precious = world.runs()
    assert precious
    world.faults = {name: list(each) for name, each in first_faults.items()}
    doing = None

    async def attempt(call):
        with contextlib.suppress(Exception):
            await call

    for action, pause in actions:
        busy = doing is not None and not doing.done()
        if action == "start" and not hub.running and not busy:
            doing = asyncio.ensure_future(attempt(hub.start()))
        elif action == "stop" and hub.running and not (hub.spawner and hub.spawner._stop_pending) and not busy:
            doing = asyncio.ensure_future(attempt(hub.stop()))
        elif action == "drain":
            world.drain()
        elif action == "evict again":
            world.evict_again = True
        elif action == "hub dies":
            around[1].cancel()
            hub.die()
            if busy:
                doing.cancel()
            await asyncio.sleep(pause)
            await hub.come_back()
            around[1] = asyncio.ensure_future(hub.polls())
        elif action in ("room", "no room"):
            world.room = action == "room"
        elif action in ("store down", "store up"):
            world.store = action == "store up"
        until = asyncio.get_running_loop().time() + pause
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.25)
            assert precious in world.held(), f"lost after {action}"
    world.faults, world.room, world.store = {}, True, True
    if doing is not None:
        await doing if not doing.cancelled() else None
    await asyncio.sleep(150)
    assert precious in world.held(), "lost in the end"
    if hub.running:
        assert world.runs() == precious, "shown as running, and it is not"
    elif world.runs():
        assert "failure" in hub.state.get("holdfast_asleep", {}), "it runs, is shown as stopped, and nobody was told"
    stayed = hub.running
    if not stayed:
        await hub.start()
    assert world.runs() == precious
    await hub.stop()
    assert world.pod is None and precious in world.held()
    for task in around:
        task.cancel()
    return stayed


def test_a_pod_that_an_eviction_by_name_takes_while_it_waits_is_created_again():
    assert run(history([("evict again", 0.1), ("drain", 12.0)], {}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True, database=None)
@given(st.lists(st.tuples(ACTIONS, st.sampled_from([0.1, 0.6, 1.3, 2.2, 4.0, 12.0, 70.0])), max_size=8), FAULTS)
def test_no_order_of_starts_stops_drains_deaths_and_failing_calls_loses_memory(actions, faults):
    run(history(actions, faults))


def test_a_create_whose_answer_was_lost_does_not_kill_the_pod_that_it_made():
    run(history([("stop", 12.0), ("start", 12.0), ("wait", 4.0)], {"create_namespaced_pod": ["lost"]}))


def test_a_resume_that_ran_out_of_time_when_its_pod_had_just_been_restored_is_no_loss():
    run(history([("stop", 12.0), ("no room", 0.1), ("start", 70.0), ("room", 12.0)], {}))
