"""Which pods with GPUs take part, on nodes that only say they have some: no device is here (tests/integration/runtime/gpu_test.py has the rest)."""

import contextlib
import json
import subprocess
import sys

import kit
import local_cluster
import pytest
from test_suspend import condition, status, wait_asleep, wait_counting, wait_phase, want

GPU = "nvidia.com/gpu"
PAGE = "/status/capacity/nvidia.com~1gpu"  # a JSON pointer


@pytest.fixture
def gpus(clean_slate):
    """Both workers offer two, as a device plugin would have them do."""
    def patch(node, op):
        kit.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps([op]))

    for node in kit.WORKERS:
        patch(node, {"op": "add", "path": PAGE, "value": "2"})
    for node in kit.WORKERS:
        kit.wait(f"{node} offers GPUs", lambda node=node: kit.get("node", node)["status"]["allocatable"].get(GPU) == "2", 90)
    yield
    for node in kit.WORKERS:
        patch(node, {"op": "remove", "path": PAGE})


def with_gpu(text, runtime_class):
    deployment, rest = text.split("\n---\n", 1)
    deployment = deployment.replace("limits: {", f'limits: {{{GPU}: "1", ')
    if runtime_class:
        deployment = deployment.replace("      terminationGracePeriodSeconds: 30\n", "      terminationGracePeriodSeconds: 30\n      runtimeClassName: holdfast\n")
    return deployment + "\n---\n" + rest


def test_a_pod_with_a_gpu_is_moved_when_its_template_names_the_runtime_class_and_told_so_when_not(gpus):
    witness = kit.start_counter(with_gpu(kit.counter_yaml(), runtime_class=False))
    old = kit.ready_pod("app=counter")
    assert "runtimeClassName" not in old["spec"]
    assert "set runtimeClassName: holdfast" in kit.wait_event(old["metadata"]["name"], "NotProtected")

    kit.apply(with_gpu(kit.counter_yaml(), runtime_class=True))
    old = kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    assert old["spec"]["runtimeClassName"] == "holdfast"
    kit.wait("the first one is gone", lambda: len(kit.pods("app=counter")) == 1)
    witness.reset()
    witness.wait_progress()
    kit.drain(old["spec"]["nodeName"])
    kit.ready_pod("app=counter", not_uid=old["metadata"]["uid"])
    witness.wait_progress()
    kit.assert_nothing_lost(witness.only())


@contextlib.contextmanager
def exporter(node, folder):
    """What stands in for a node's DCGM exporter: serves folder/metrics."""
    serving = subprocess.Popen(["nsenter", "-t", str(local_cluster.node_pid(node)), "-n", sys.executable, "-m", "http.server", "9400", "--bind", "127.0.0.1", "--directory", folder],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        serving.kill()
        serving.wait()


def test_a_pod_whose_gpu_computes_stays_and_sleeps_when_its_gpu_is_idle_too(gpus, tmp_path):
    witness = kit.start_counter(with_gpu(kit.counter_yaml(), runtime_class=True))
    pod = kit.ready_pod("app=counter")
    page = tmp_path / "metrics"

    def used(percent):
        labels = f'gpu="0",UUID="GPU-0",container="counter",namespace="default",pod="{pod["metadata"]["name"]}"'
        page.with_suffix(".new").write_text(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {percent}\n")
        page.with_suffix(".new").rename(page)

    spec = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "counter"}, "idle": {"after": "10s", "signals": {"gpu": {"utilBelow": 5}}}}
    kit.apply(json.dumps({"apiVersion": "holdfast.dev/v1alpha1", "kind": "SuspendedWorkload", "metadata": {"name": "nb"}, "spec": spec}))
    kit.wait("nothing tells how its GPU is used", lambda: condition("Idle")[0] == "NotMeasured" and "127.0.0.1:9400" in condition("Idle")[1], limit=60)
    used(60)
    with exporter(pod["spec"]["nodeName"], tmp_path):
        kit.wait("its GPU is seen at work", lambda: condition("Idle")[0] == "Active" and "its GPU is used at 60 %" in condition("Idle")[1], limit=60)
        kit.stays("it runs", lambda: status().get("phase") == "Running", seconds=20)
        witness.wait_progress(5)
        used(4.9)
        wait_asleep(limit=90)
    assert status()["freed"]["gpu"] == "1", status()
    want("Running")
    wait_phase("Running")
    wait_counting(witness)
