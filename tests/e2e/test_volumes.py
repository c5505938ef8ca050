"""Several stores, each with a volume of its own: workloads are spread over them, and one that hangs is passed over."""

import json

import pytest

import kit
import releases
from test_many import start_on

VOLUMES = {"default": 0, "holdfast-store-1": 1}  # status.manifest.store: its replica
COUNTERS = 4
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: holdfast-volume-%(replica)d}
spec:
  capacity: {storage: 100Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: holdfast-system, name: data-holdfast-store-%(replica)d}
  hostPath: {path: /var/lib/holdfast-volume-%(replica)d}
"""


def helm_upgrade(*values, stdin=None):
    kit.run(kit.CLUSTER / "helm", "upgrade", "holdfast", kit.ROOT / "charts" / "holdfast", "-n", kit.SYSTEM, "--force-conflicts", *values, stdin=stdin)
    releases.await_rolled_out()


def new_store(*values, stdin=None):
    """The store with another kind of volume. A StatefulSet does not take another one, so it goes first."""
    kit.kubectl("delete", "statefulset", "holdfast-store", "-n", kit.SYSTEM, "--cascade=foreground", timeout=90)
    helm_upgrade(*values, stdin=stdin)


@pytest.fixture
def two_stores(clean_slate):
    before = kit.run(kit.CLUSTER / "helm", "get", "values", "holdfast", "-n", kit.SYSTEM, "-o", "json")
    for replica in VOLUMES.values():
        kit.on_node(kit.SYSTEM_NODE, "sh", "-c", f"mkdir -p /var/lib/holdfast-volume-{replica} && chown 65532:65532 /var/lib/holdfast-volume-{replica}")
        kit.apply(VOLUME % {"replica": replica})
    try:
        new_store("--reuse-values", "--set", "store.storage.hostPath=,store.replicas=2,agent.maxUnavailable=2")
        yield
    finally:
        kit.remove_everything()  # while there is who can delete the content
        new_store("--reset-values", "--values", "-", stdin=before)
        for replica in VOLUMES.values():
            kit.kubectl("delete", "pvc", f"data-holdfast-store-{replica}", "-n", kit.SYSTEM, "--wait=true")
            kit.kubectl("delete", "pv", f"holdfast-volume-{replica}")
            kit.on_node(kit.SYSTEM_NODE, "rm", "-rf", f"/var/lib/holdfast-volume-{replica}")


def counters():
    """As many Deployments, each of one small counter, and the witness."""
    counter, witness = kit.counter_yaml(10).split("\n---\n", 1)
    return "\n---\n".join(
        [counter.replace("name: counter\n  labels", f"name: counter-{n}\n  labels").replace("{app: counter}", f"{{app: counter, one: c{n}}}") for n in range(COUNTERS)]
        + [witness]
    )


def drained():
    """{name of the workload: Checkpoint} of the newest drain."""
    ready = [c for c in kit.checkpoints() if c.get("status", {}).get("phase") == "Ready"]
    return {c["status"]["owner"]["name"]: c for c in sorted(ready, key=lambda c: c["status"]["completedAt"])}


def manifests(store):
    found = kit.on_node(kit.SYSTEM_NODE, "find", f"/var/lib/holdfast-volume-{VOLUMES[store]}/manifests", "-type", "f", "-printf", "%f\n")
    return set(found.split())


def stored_where(checkpoints):
    """{store: uids that its status says}, which must be what lies on its volume."""
    where = {store: {c["metadata"]["uid"] for c in checkpoints if c["status"]["manifest"]["store"] == store} for store in VOLUMES}
    for store, uids in where.items():
        assert uids <= manifests(store), f"{store} lacks {uids - manifests(store)}"
    return where


def move(node, witness):
    kit.drain(node)
    other = next(n for n in kit.WORKERS if n != node)
    kit.wait(f"all counters on {other}", lambda: [p["spec"].get("nodeName") for p in kit.pods("app=counter") if kit.is_ready(p)] == COUNTERS * [other])
    kit.kubectl("uncordon", node)
    witness.wait_progress()
    assert len(witness.report()) == COUNTERS, "a counter started cold"
    for report in witness.report().values():
        kit.assert_nothing_lost(report)


def test_workloads_are_spread_over_two_stores_and_one_that_hangs_is_passed_over(two_stores):
    witness = start_on("node1", counters(), counters=COUNTERS)
    move("node1", witness)
    own = {name: c["status"]["manifest"]["store"] for name, c in drained().items()}
    assert len(own) == COUNTERS and set(own.values()) == set(VOLUMES), own
    stored_where(drained().values())

    store = kit.get("pod", "holdfast-store-1", kit.SYSTEM)
    process = kit.init_pid(kit.SYSTEM_NODE, kit.container_id(store))
    kit.on_node(kit.SYSTEM_NODE, "kill", "-STOP", process)
    try:
        move("node2", witness)
        assert {c["status"]["manifest"]["store"] for c in drained().values()} == {"default"}, own
    finally:
        kit.on_node(kit.SYSTEM_NODE, "kill", "-CONT", process)

    where = stored_where(kit.checkpoints())
    kit.kubectl("delete", "deployments", "--all", "--wait=false")
    kit.kubectl("delete", "checkpoints.holdfast.dev", *[c["metadata"]["name"] for c in kit.checkpoints() if c["metadata"]["uid"] in where["holdfast-store-1"]], timeout=60)
    assert not manifests("holdfast-store-1") & where["holdfast-store-1"] and where["default"] <= manifests("default"), json.dumps([*map(sorted, where.values())])
    kit.kubectl("delete", "checkpoints.holdfast.dev", "--all", timeout=60)
    assert not manifests("default")
