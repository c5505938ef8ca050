import asyncio
import base64

import pytest
from jupyterhub_holdfast import kept as module
from jupyterhub_holdfast.kept import Keeper, Kept, SuspendFailed, said
from kubernetes_asyncio.client import ApiException

MANIFEST = {"metadata": {"name": "jupyter-alice"}, "spec": {"containers": [{"name": "notebook", "env": [{"name": "JUPYTERHUB_API_TOKEN", "value": "t0"}]}]}}


class Api:
    """Secrets and Checkpoints as an API server has them. `after` changes a Checkpoint when it is read for the n-th time."""

    def __init__(self):
        self.secrets, self.objects, self.reads, self.after = {}, {}, 0, {}

    async def read_namespaced_secret(self, name, _ns):
        if name not in self.secrets:
            raise ApiException(status=404)
        data = {k: base64.b64encode(v.encode()).decode() for k, v in self.secrets[name]["stringData"].items()}
        return type("Secret", (), {"data": data})

    async def create_namespaced_secret(self, _ns, body):
        if body["metadata"]["name"] in self.secrets:
            raise ApiException(status=409)
        self.secrets[body["metadata"]["name"]] = body

    async def replace_namespaced_secret(self, name, _ns, body):
        self.secrets[name] = body

    async def delete_namespaced_secret(self, name, _ns):
        if self.secrets.pop(name, None) is None:
            raise ApiException(status=404)

    async def list_namespaced_custom_object(self, *_):
        self._tick()
        return {"items": list(self.objects.values())}

    async def get_namespaced_custom_object(self, *args):
        self._tick()
        if args[-1] not in self.objects:
            raise ApiException(status=404)
        return self.objects[args[-1]]

    async def create_namespaced_custom_object(self, *args):
        body = args[-1]
        self.objects[body["metadata"]["name"]] = {**body, "status": {}}

    async def delete_namespaced_custom_object(self, *args):
        if self.objects.pop(args[-1], None) is None:
            raise ApiException(status=404)

    def _tick(self):
        self.reads += 1
        self.after.get(self.reads, lambda: None)()

    def put(self, name, uid="u1", at="2026-01-01T00:00:00Z", final=True, **status):
        self.objects[name] = {"metadata": {"name": name, "creationTimestamp": at}, "spec": {"podRef": {"name": "jupyter-alice", "uid": uid}, "final": final}, "status": status}


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(module, "POLL_EVERY", 0.001)
    return Api()


def keeper(api):
    return Keeper(api, api, "hub")


def run(call):
    return asyncio.run(call)


def test_what_is_saved_is_loaded_and_replaced(api):
    run(keeper(api).save("jupyter-alice", Kept(MANIFEST, "u1", "1/")))
    run(keeper(api).save("jupyter-alice", Kept(MANIFEST, "u2", "1/")))
    found = run(keeper(api).load("jupyter-alice"))
    assert (found.manifest, found.pod_uid, found.owner, found.token) == (MANIFEST, "u2", "1/", "t0")
    assert run(keeper(api).load("jupyter-bob")) is None


def test_a_secret_of_somebody_else_is_nothing(api):
    api.secrets["holdfast-jupyter-alice"] = {"stringData": {"manifest": "{"}}
    assert run(keeper(api).load("jupyter-alice")) is None


def test_a_suspension_is_a_pinned_final_checkpoint_of_this_very_pod(api):
    def ready():
        next(iter(api.objects.values()))["status"] = {"phase": "Ready", "summary": {"size": "1 MiB"}}

    api.after[4] = ready
    done = run(keeper(api).suspend("jupyter-alice", "u1", 30))
    made = api.objects[done.name]
    assert made["spec"] == {"podRef": {"name": "jupyter-alice", "uid": "u1"}, "final": True, "trigger": "Suspend", "pinned": True, "deadline": "30s"}
    assert done.size == "1 MiB"


def test_a_hub_that_died_on_the_way_goes_on_with_the_checkpoint_that_it_began(api):
    api.put("begun", phase="Storing")
    api.after[3] = lambda: api.put("begun", phase="Ready")
    assert run(keeper(api).suspend("jupyter-alice", "u1", 30)).name == "begun"
    assert list(api.objects) == ["begun"]


def test_a_failed_checkpoint_says_why_and_another_one_gets_another_name(api):
    def fail():
        for each in api.objects.values():
            each["status"] = {"phase": "Failed", "conditions": [{"type": "Ready", "reason": "DumpFailed", "message": "no room"}]}

    api.after[3] = api.after[7] = fail
    for _ in range(2):
        with pytest.raises(SuspendFailed, match="DumpFailed: no room"):
            run(keeper(api).suspend("jupyter-alice", "u1", 30))
    assert len(api.objects) == 2


def test_a_checkpoint_that_does_not_end_is_deleted_so_that_its_pod_runs_on(api):
    with pytest.raises(SuspendFailed, match="does Holdfast's controller run"):
        run(keeper(api).suspend("jupyter-alice", "u1", -10))
    assert api.objects == {}


RESTORED = {"podName": "jupyter-alice", "outcome": "Restored", "at": "2026-01-02T00:00:01Z"}


def claim(uid, name="jupyter-alice"):
    return {"podName": name, "podUID": uid, "at": "2026-01-02T00:00:00Z"}


def test_the_final_checkpoints_of_a_pod_and_of_those_that_went_on_from_it_are_found_the_newest_first(api):
    api.put("old", at="2026-01-01T00:00:00Z", phase="Ready", claim=claim("u2"), restores=[RESTORED])
    api.put("new", uid="u2", at="2026-01-02T00:00:00Z", phase="Ready")
    api.put("others", uid="u3", at="2026-01-04T00:00:00Z", phase="Ready")
    api.put("left-running", at="2026-01-05T00:00:00Z", phase="Ready", final=False)
    assert [c.name for c in run(keeper(api).checkpoints("u1"))] == ["new", "old"]


def test_a_pod_of_another_name_that_was_started_from_it_is_no_heir(api):
    api.put("old", phase="Ready", claim=claim("u2", "copy"), restores=[{**RESTORED, "podName": "copy"}])
    api.put("copys", uid="u2", phase="Ready")
    assert [c.name for c in run(keeper(api).checkpoints("u1"))] == ["old"]


def test_what_is_used_up_goes_once_its_pod_is_known(api):
    api.put("old", phase="Ready", claim=claim("u2"), restores=[RESTORED])
    api.put("given", phase="Ready", claim=claim("u9"))
    run(keeper(api).drop_used("u2"))
    assert list(api.objects) == ["given"]


def test_to_forget_a_server_takes_what_nobody_goes_on_from(api):
    api.put("held", phase="Ready")
    api.put("given", phase="Ready", claim=claim("u9"))
    run(keeper(api).save("jupyter-alice", Kept(MANIFEST, "u1", "1/")))
    run(keeper(api).forget("jupyter-alice", "u1"))
    assert list(api.objects) == ["given"] and api.secrets == {}
    run(keeper(api).forget("jupyter-alice", "u1"))


def test_what_is_somebody_elses_is_set_aside_with_its_checkpoints_and_makes_room(api):
    api.put("held", phase="Ready")
    run(keeper(api).save("jupyter-alice", Kept(MANIFEST, "u1", "1/")))
    for _ in range(2):  # a hub that died between its two writes does both again
        aside = run(keeper(api).set_aside("jupyter-alice", Kept(MANIFEST, "u1", "1/")))
    assert list(api.objects) == ["held"] and list(api.secrets) == [aside] and aside.startswith("holdfast-jupyter-alice-")
    assert api.secrets[aside]["metadata"]["labels"]["jupyterhub.holdfast.dev/set-aside"] == "true"
    assert run(keeper(api).load("jupyter-alice")) is None


def test_while_others_of_its_node_are_before_it_a_checkpoint_has_time(api):
    def queue():
        next(iter(api.objects.values()))["status"] = {"phase": "Pending", "conditions": [{"type": "Ready", "reason": "Queued"}]}

    def ready():
        next(iter(api.objects.values()))["status"] = {"phase": "Ready"}

    api.after[3], api.after[20] = queue, ready
    assert run(keeper(api).suspend("jupyter-alice", "u1", -9.99)).phase == "Ready"


def test_an_api_server_that_does_not_answer_is_named(api):
    async def hangs(*_):
        await asyncio.sleep(60)

    api.read_namespaced_secret = hangs
    with pytest.raises(ApiException) as error:
        run(Keeper(api, api, "hub", 0.01).load("jupyter-alice"))
    assert error.value.status == 0 and "no answer" in said(error.value)
