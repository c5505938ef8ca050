"""A Checkpoint that a user asks for: through the kubelet, the pod goes on; later a new pod starts from it."""

import json

import kit

CHECKPOINT = """
apiVersion: holdfast.dev/v1alpha1
kind: Checkpoint
metadata: {name: %(name)s}
spec:
  podRef: {name: %(pod)s}
"""


def take(name, pod):
    kit.apply(CHECKPOINT % {"name": name, "pod": pod})
    return kit.ended(name)


def test_a_manual_checkpoint_leaves_the_pod_running(counter):
    pod = kit.ready_pod("app=counter")
    checkpoint = take("by-hand", pod["metadata"]["name"])
    assert checkpoint["status"]["phase"] == "Ready", checkpoint["status"]
    counter.wait_progress()
    after = kit.ready_pod("app=counter")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    kit.assert_nothing_lost(counter.only())
    left = kit.on_node(pod["spec"]["nodeName"], "sh", "-c", "ls /var/lib/kubelet/checkpoints 2>/dev/null; true").strip()
    assert left == "", "the kubelet's archive was left behind"


def test_a_manual_checkpoint_can_be_restored_into_a_new_pod(counter):
    pod = kit.ready_pod("app=counter")
    assert take("by-hand", pod["metadata"]["name"])["status"]["phase"] == "Ready"
    nonce, before = next(iter(counter.report().items()))
    kit.kubectl("scale", "deployment/counter", "--replicas=0")
    kit.wait("the old pod is gone", lambda: not kit.pods("app=counter"))
    kit.kubectl("patch", "deployment/counter", "--type=merge", "-p",
                '{"spec":{"replicas":1,"template":{"metadata":{"annotations":{"holdfast.dev/from-checkpoint":"by-hand"}}}}}')
    new = kit.ready_pod("app=counter", not_uid=pod["metadata"]["uid"])
    assert new["metadata"]["annotations"]["holdfast.dev/restore"] == "by-hand"
    kit.wait("the old nonce counts again", lambda: counter.report()[nonce]["connections_now"] == 1)
    counter.wait_progress()
    report = counter.report()
    assert list(report) == [nonce], "a counter started cold"
    # It went back to the checkpoint, which is older than the end of the first pod: those counts come again, none is missing.
    assert report[nonce]["lost"] == 0 and not report[nonce]["loopback_broken"] and not report[nonce]["two_copies"]
    assert before["last"] > 0


def test_a_pod_whose_checkpoint_needs_what_no_processor_has_waits_and_says_so(counter):
    pod = kit.ready_pod("app=counter")
    features = take("by-hand", pod["metadata"]["name"])["status"]["platform"]["cpuFeatures"]
    node = kit.get("node", pod["spec"]["nodeName"])["metadata"]
    assert features == node["annotations"]["holdfast.dev/cpu-features"] and "sse2" in features.split()

    def need(what):
        kit.kubectl("patch", "checkpoint", "by-hand", "--subresource=status", "--type=merge", "-p", json.dumps({"status": {"platform": {"cpuFeatures": what}}}))

    need(f"{features} avx9000")
    kit.kubectl("scale", "deployment/counter", "--replicas=0")
    kit.wait("the old pod is gone", lambda: not kit.pods("app=counter"))
    kit.kubectl("patch", "deployment/counter", "--type=merge", "-p",
                '{"spec":{"replicas":1,"template":{"metadata":{"annotations":{"holdfast.dev/from-checkpoint":"by-hand"}}}}}')
    kit.wait("a successor that is claimed for", lambda: [p for p in kit.pods("app=counter") if "holdfast.dev/restore" in p["metadata"]["annotations"]])
    held = kit.pods("app=counter")[0]
    assert "avx9000" in kit.wait_event(held["metadata"]["name"], "NoNodeForState")
    kit.wait("the scheduler has no node for it", lambda: any(c["type"] == "PodScheduled" and c["status"] == "False" and c["reason"] == "Unschedulable"
                                                              for c in kit.pods("app=counter")[0].get("status", {}).get("conditions", [])))
    need(features)
    kit.kubectl("delete", "pod", held["metadata"]["name"])
    kit.ready_pod("app=counter", not_uid=held["metadata"]["uid"])
    counter.wait_progress()
    assert len(counter.report()) == 1, "a counter started cold"
