"""Where dumps land: in the node's memory when they fit, by no pod's account; else on its disk."""

import contextlib
import re
import urllib.request

import kit

CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: moved}
spec: {podRef: {name: %(name)s, uid: %(uid)s}, final: true, trigger: Drain}
"""


def landed(node):
    """{place: dumps} by the agent's own count."""
    address = next(a["address"] for a in kit.get("node", node)["status"]["addresses"] if a["type"] == "InternalIP")
    with urllib.request.urlopen(f"http://{address}:9464/metrics", timeout=10) as answer:
        found = re.findall(r'^holdfast_dumps_total\{landing="(\w+)"\} (\d+)', answer.read().decode(), re.M)
    return {"memory": 0, "disk": 0, **{place: int(count) for place, count in found}}


def restarts(node):
    pod = next(p for p in kit.component_pods("agent") if p["spec"]["nodeName"] == node)
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]


def size(node):
    """Of the memory for dumps, and what of it is used: bytes."""
    return tuple(map(int, kit.on_node(node, "df", "-B1", "--output=size,used", kit.LANDING_MEMORY).splitlines()[1].split()))


@contextlib.contextmanager
def resized(node, bytes_):
    before, _ = size(node)
    kit.on_node(node, "mount", "-o", f"remount,size={bytes_}", kit.LANDING_MEMORY)
    try:
        yield
    finally:
        kit.on_node(node, "mount", "-o", f"remount,size={before}", kit.LANDING_MEMORY)


def drain_once(witness):
    """Drains the counter's node: the node, where its dump landed, and how often each."""
    old = kit.ready_pod("app=counter")
    node = old["spec"]["nodeName"]
    before, agent = landed(node), restarts(node)
    kit.drain(node)
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"], limit=90)
    witness.wait_progress(60)
    kit.assert_nothing_lost(witness.only())
    assert restarts(node) == agent, "the agent was restarted"
    after = landed(node)
    return node, {place: after[place] - before[place] for place in after}


def test_a_drain_lands_in_memory_beyond_the_agents_own_limit_and_loses_nothing(clean_slate):
    agent = next(iter(kit.component_pods("agent")))["spec"]["containers"][0]
    assert agent["resources"]["limits"]["memory"] == "1Gi"
    witness = kit.start_counter(kit.counter_yaml(1500).replace("memory: 500Mi", "memory: 1800Mi"))
    node, where = drain_once(witness)
    assert where == {"memory": 1, "disk": 0}
    timings = kit.checkpoints()[0]["status"]["timings"]
    kit.wait("the memory is free again", lambda: size(node)[1] == 0, 30)
    print(f"1500 MiB from {node}: {timings}")


def test_a_dump_that_does_not_fit_the_budget_lands_on_disk(counter):
    node = kit.ready_pod("app=counter")["spec"]["nodeName"]
    with resized(node, 8 << 20):
        assert drain_once(counter) == (node, {"memory": 0, "disk": 1})


def test_a_successor_on_the_same_node_is_restored_from_memory(clean_slate):
    kit.kubectl("cordon", "node2")
    witness = kit.start_counter(kit.counter_yaml())
    old = kit.ready_pod("app=counter")["metadata"]
    kit.arm_fault("node1", "runtime.before_kill", "delay 5000")  # what is dumped lies there until its pod is gone
    kit.apply(CHECKPOINT % old)
    new = kit.wait("a successor", lambda: next((p for p in kit.pods("app=counter") if p["metadata"]["uid"] != old["uid"]), None), 60)["metadata"]["uid"]
    folder = kit.node_path("node1", f"/var/lib/holdfast/restore/{new}")
    kit.wait("its images as a link into memory", folder.is_symlink, 60, every=0.02)
    assert str(folder.readlink()) == f"{kit.LANDING_MEMORY}/restore/{new}"
    kit.ready_pod("app=counter", not_uid=old["uid"], limit=90)
    witness.wait_progress(60)
    kit.assert_nothing_lost(witness.only())
