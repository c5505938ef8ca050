"""Real software, checked by its content: moved to a node with another containerd (HF_HEAVY: and back), in batches; and what cannot be moved,
which is refused before anything is frozen. HF_WORKLOADS=redis,nginx: these only."""

import os

import pytest

import kit
import moving
import workloads

ONLY = [name for name in os.environ.get("HF_WORKLOADS", "").split(",") if name]
HEAVY = bool(os.environ.get("HF_HEAVY"))
DOCS = kit.ROOT / "docs" / "compatibility.md"


@pytest.fixture(scope="session")
def images(holdfast):
    return moving.Images()


def chosen(entries, of_a_commit):
    """Those of HF_WORKLOADS, else in the gate so many, others for every commit."""
    names = ONLY or kit.of_this_commit([entry.name for entry in entries], of_a_commit)
    return [entry for entry in entries if entry.name in names]


def move_all(batch, images):
    batch = chosen(batch, 4)
    if not batch:
        pytest.skip("not among HF_WORKLOADS")
    problems, _ = moving.move_all(batch, images, drains=2 if HEAVY else 1)
    assert not problems, "\n".join([f"{len(problems)} of {len(batch)} did not survive:", *problems])


def test_servers_go_on_with_their_content_on_another_node(clean_slate, images):
    move_all(workloads.batch("servers"), images)


def test_programs_and_shells_go_on_with_their_content_on_another_node(clean_slate, images):
    move_all(workloads.batch("programs"), images)


def test_processes_timers_and_signals_are_the_same_on_another_node(clean_slate, images):
    move_all(workloads.batch("kernel"), images)


def test_files_sockets_and_memory_are_the_same_on_another_node(clean_slate, images):
    move_all(workloads.batch("files"), images)


def test_pods_of_every_shape_go_on_on_another_node(clean_slate, images):
    move_all(workloads.batch("pods"), images)


@pytest.mark.skipif(not HEAVY, reason="make compat: its image needs big packages")
def test_big_runtimes_go_on_with_their_content_on_another_node(clean_slate, images):
    move_all(workloads.HEAVY, images)


def test_what_cannot_be_moved_is_refused_before_it_is_frozen(clean_slate, images):
    refused = chosen(workloads.REFUSALS, 5)
    if not refused:
        pytest.skip("not among HF_WORKLOADS")
    kit.apply(workloads.as_list([workloads.scripts(), *(workloads.bare_pod(r, images(r.image)) for r in refused)]))
    pods = {r.name: kit.ready_pod(f"app={r.name}", limit=120) for r in refused}
    held = {}
    for refusal in refused:
        pod = pods[refusal.name]
        status = pod["status"]["containerStatuses"][0]
        container = status["containerID"].removeprefix("containerd://")
        kit.wait(f"{refusal.name} holds what cannot be dumped", lambda p=pod, c=container: moving.in_container(p["spec"]["nodeName"], c, "ls /run/holds"))
        held[refusal.name] = (pod["spec"]["nodeName"], container)
    kit.apply(workloads.as_list([
        {"apiVersion": "holdfast.dev/v1alpha1", "kind": "Checkpoint", "metadata": {"name": r.name}, "spec": {"podRef": {"name": r.name}, "final": True}} for r in refused]))
    problems = []
    for refusal in refused:
        status = kit.ended(refusal.name)["status"]
        reason, message = kit.ready_reason({"status": status})
        if reason != "Unsupported" or refusal.says not in message or status.get("timings", {}).get("frozen", "0s") not in ("0s", "0ms", "0"):
            problems.append(f"{refusal.name}: {reason}: {message} {status.get('timings')}")
        if not kit.runs(*held[refusal.name]):
            problems.append(f"{refusal.name}: it does not run any more")
    assert not problems, "\n".join(problems)


def test_the_table_in_the_docs_is_what_is_tested():
    assert "\n".join(workloads.table()) in DOCS.read_text(), f"python3 tests/e2e/workloads.py prints the table that {DOCS} must have"
    assert len(workloads.WORKLOADS + workloads.HEAVY) >= 25
