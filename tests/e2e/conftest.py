"""The local cluster with Holdfast installed by its chart, once for all end-to-end tests, and a clean slate around each of them."""

import os
import subprocess

import pytest

import kit
import leaks
import network


@pytest.fixture(scope="session", autouse=True)
def holdfast():
    """Cluster up and chart installed: scripts/install-local.sh does nothing where that is so already."""
    if os.environ.get("HF_INSTALLED"):  # scripts/test.sh has just done it
        return
    done = subprocess.run([str(kit.ROOT / "scripts" / "install-local.sh")], capture_output=True, text=True, timeout=900,
                          env={**os.environ, "HF_FAULT_POINTS": "1"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def remove_everything():
    """Workloads and Checkpoints of the namespace that tests use; also what a demo left there."""
    for kinds in (("poddisruptionbudgets", "deployments", "statefulsets", "jobs", "pods"), ("checkpoints",)):
        there = [kind for kind in kinds if kit.get(kind)]
        if there:
            kit.kubectl("delete", ",".join(there), "--all", "-n", "default", "--wait=true", "--timeout=90s", timeout=120)


@pytest.fixture(autouse=True)
def clean_slate(holdfast):
    """Before: network whole, both workers schedulable, no fault armed, nothing there. After: nothing of the test is left, in the API, in the
    store or on the nodes."""
    network.heal_all()
    kit.disarm_faults()
    kit.uncordon_all()
    remove_everything()
    before = set(leaks.on_nodes())  # an earlier test has failed for it
    yield
    network.heal_all()
    kit.disarm_faults()
    kit.uncordon_all()
    nothing("no promise in the API that nobody keeps", leaks.in_the_api)
    remove_everything()
    nothing("nothing left on nodes and in the store", lambda: [line for line in leaks.on_nodes() if line not in before])


def nothing(what, find, limit=45):
    found = []

    def look():
        found[:] = find()
        return not found

    try:
        kit.wait(what, look, limit, every=0.5)
    except kit.Failure as failure:
        raise kit.Failure("\n".join([str(failure), *found])) from None


@pytest.fixture
def counter(clean_slate):
    """The example counter with 30 MiB, running and counting: its witness."""
    return kit.start_counter(kit.counter_yaml())


@pytest.fixture
def big_counter(clean_slate):
    """The example as it is: 300 MiB."""
    return kit.start_counter(kit.counter_yaml(300))
