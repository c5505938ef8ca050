"""The main job: a Deployment that opted in goes on, on another node, from where it was."""

import json
import re

import kit


def drain_once(selector="app=counter"):
    """Drains the node that carries the pod, waits for the successor, uncordons; returns (Drain, old pod, new pod)."""
    old = kit.ready_pod(selector)
    done = kit.drain(old["spec"]["nodeName"])
    new = kit.ready_pod(selector, not_uid=old["metadata"]["uid"])
    kit.kubectl("uncordon", old["spec"]["nodeName"])
    return done, old, new


def test_ten_drains_back_and_forth_lose_and_repeat_no_count(big_counter):
    for _ in range(10):
        _, old, new = drain_once()
        assert new["spec"]["nodeName"] != old["spec"]["nodeName"]
        big_counter.wait_progress()
        kit.assert_nothing_lost(big_counter.only())
    kit.assert_own_clock_stood_still(big_counter.only(), moves=10)
    gaps = [g["ms"] for g in big_counter.only()["gaps"]]
    print(f"gaps over 1 s: {gaps}; longest {big_counter.only()['longest_gap_ms']} ms")  # bench/drain judges them


def test_drain_shows_the_progress_of_the_checkpoint(counter):
    done, old, _ = drain_once()
    assert re.search(rf"holdfast: checkpointing default/{old['metadata']['name']}", done.output), done.output


def test_the_outside_connection_is_reset_at_once_and_reconnects(counter):
    before = counter.only()["reconnects"]
    drain_once()
    counter.wait_progress()
    report = counter.only()
    assert report["reconnects"] == before + 1
    kit.assert_own_clock_stood_still(report, moves=1)
    assert not report["loopback_broken"]


def test_logs_go_on_and_exec_works_after_a_drain(counter):
    _, _, new = drain_once()
    counter.wait_progress()
    name = new["metadata"]["name"]
    first = kit.wait("a log line of the restored process", lambda: kit.kubectl("logs", name, "-c", "counter", "--tail=1"))
    kit.wait("a further log line", lambda: kit.kubectl("logs", name, "-c", "counter", "--tail=1") != first)


def test_the_service_account_token_is_the_new_pods(counter):
    _, old, new = drain_once()
    counter.wait_progress()
    claims = token_claims(new)
    assert claims["kubernetes.io"]["pod"]["uid"] == new["metadata"]["uid"]


def token_claims(pod):
    """The claims of the token that the pod's processes see (read on the node: the example image has no shell)."""
    import base64

    node = pod["spec"]["nodeName"]
    pid = kit.init_pid(node, kit.container_id(pod))
    token = kit.on_node(node, "cat", f"/proc/{pid}/root/var/run/secrets/kubernetes.io/serviceaccount/token")
    payload = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def test_two_containers_move_together(clean_slate):
    kit.kubectl("apply", "-f", str(kit.ROOT / "examples" / "two-containers.yaml"))
    kit.ready_pod("app=two-containers", limit=90)
    witness = kit.Witness()
    kit.wait("both containers count", lambda: len(witness.report()) == 2)
    for _ in range(2):
        drain_once("app=two-containers")
        witness.wait_progress()
        report = witness.report()
        assert len(report) == 2, report
        for counter_report in report.values():
            kit.assert_nothing_lost(counter_report)


def test_the_checkpoint_tells_what_it_was(big_counter):
    _, old, new = drain_once()
    big_counter.wait_progress()
    name = new["metadata"]["annotations"]["holdfast.dev/restore"]
    checkpoint = kit.get("checkpoints.holdfast.dev", name)
    status = checkpoint["status"]
    assert status["phase"] == "Ready" and kit.ready_reason(checkpoint)[0] == "Completed"
    assert status["podUID"] == old["metadata"]["uid"]
    assert status["claim"]["podUID"] == new["metadata"]["uid"]
    assert status["owner"]["kind"] == "Deployment" and status["owner"]["name"] == "counter"
    assert status["size"]["memory"] > 300e6
    restored = kit.restores(name)
    assert restored[0]["outcome"] == "Restored" and restored[0]["node"] == new["spec"]["nodeName"]
    assert kit.wait_event(new["metadata"]["name"], "Restored")
