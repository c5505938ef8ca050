"""The local cluster with Holdfast installed by its chart, once for all end-to-end tests, and a clean slate around each of them: a new cluster
where the test before it failed, or did not come to its end."""

import os
import signal
import subprocess

import pytest

import api
import evidence
import hostile
import kit
import leaks
import local_cluster
import network

DIRTY = local_cluster.RUN / "dirty"  # names the test that this cluster is in the hands of, or that failed on it
LIMIT = 600  # seconds a test may take; ctest's own limit is longer, and would leave no time to tidy up


@pytest.fixture(scope="session", autouse=True)
def holdfast():
    """Cluster up and chart installed: scripts/install-local.sh does nothing where that is so already."""
    if not os.environ.get("HF_INSTALLED"):  # scripts/test.py has just done it
        install()


def install():
    done = subprocess.run([str(kit.ROOT / "scripts" / "install-local.sh")], capture_output=True, text=True, timeout=900,
                          env={**os.environ, "HF_FAULT_POINTS": "1", "HF_SLOT": local_cluster.SLOT})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def new_cluster():
    """In place of the one that an earlier test has left in some state."""
    before = DIRTY.read_text()
    print(f"a new cluster: {before} failed on the old one, or was ended there")
    if not (evidence.FOLDER and os.path.exists(os.path.join(evidence.FOLDER, before))):
        evidence.keep(before, "it was ended before it could say anything")
    subprocess.run([str(kit.CLUSTER / "down.sh")], env={**os.environ, "HF_SLOT": local_cluster.SLOT}, timeout=180, check=False)
    install()
    api.forget()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and not hasattr(item, "kept"):
        item.kept = evidence.keep(item.name.removeprefix("test_"), report.longreprtext)
    if report.when == "teardown" and not hasattr(item, "kept"):
        DIRTY.unlink(missing_ok=True)
    return report


def too_late(*_):
    raise kit.Failure(f"it did not come to its end within {LIMIT * kit.SLOW:.0f} s")


@pytest.fixture(autouse=True)
def clean_slate(holdfast, request):
    """Before: network whole, both workers schedulable, no fault armed, nothing there. After: nothing of the test is left, in the API, in the
    store or on the nodes. Where the test before this one failed all that is not hoped for: the cluster is a new one."""
    if DIRTY.exists() and os.environ.get("HF_INSTALLED"):
        new_cluster()
    DIRTY.write_text(request.node.name.removeprefix("test_"))
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(int(LIMIT * kit.SLOW))
    network.heal_all()
    kit.disarm_faults()
    kit.uncordon_all()
    kit.remove_everything()
    before = set(leaks.on_nodes())  # an earlier test has failed for it
    yield
    signal.alarm(0)
    network.heal_all()
    kit.disarm_faults()
    kit.uncordon_all()
    nothing("no promise in the API that nobody keeps", leaks.in_the_api)
    kit.remove_everything()
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
def scaled_down(clean_slate):
    """Takes a Holdfast workload to 0 replicas for one test; what it returns brings it back sooner."""
    taken = []

    def take(kind, name):
        replicas = kit.get(kind, name, ns=kit.SYSTEM)["spec"]["replicas"]
        taken.append((kind, name, replicas))
        kit.kubectl("scale", f"{kind}/{name}", "--replicas=0", "-n", kit.SYSTEM)
        component = name.removeprefix("holdfast-")
        kit.wait(f"{name} is gone", lambda: not kit.component_pods(component))
        return give_back

    def give_back():
        while taken:
            kind, name, replicas = taken.pop()
            kit.kubectl("scale", f"{kind}/{name}", f"--replicas={replicas}", "-n", kit.SYSTEM)
            kit.kubectl("rollout", "status", f"{kind}/{name}", "-n", kit.SYSTEM, "--timeout=90s")

    yield take
    give_back()


@pytest.fixture
def small_landing(clean_slate):
    """node1 has 4 MiB for dumps."""
    with hostile.small_landing("node1"):
        yield


@pytest.fixture
def counter(clean_slate):
    """The example counter with 30 MiB, running and counting: its witness."""
    return kit.start_counter(kit.counter_yaml())


@pytest.fixture
def big_counter(clean_slate):
    """The example as it is: 300 MiB."""
    return kit.start_counter(kit.counter_yaml(300))
