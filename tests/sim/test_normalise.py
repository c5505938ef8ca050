"""What record.py keeps of what it saw: the order of versions, stable names, no change that is none, and nothing that tells of the machine."""

import json

from normalise import Normaliser
from record import documents

POD = {"name": "counter-7d9f-x2k4q", "uid": "0f-1", "labels": {"app": "counter"}}


def pod(version, spec=None, status=None, **meta):
    return {"metadata": {**POD, "resourceVersion": str(version), **meta}, "spec": spec or {}, "status": status or {}}


def checkpoint(version, **status):
    meta = {"name": "drain-counter-7d9f-x2k4q-0f", "resourceVersion": str(version), "finalizers": ["holdfast.dev/stored-content"]}
    return {"metadata": meta, "spec": {"podRef": {"name": POD["name"], "uid": POD["uid"]}, "trigger": "Drain", "final": True}, "status": status}


def lines(seen, marks=()):
    return Normaliser(["worker-a", "worker-b"]).lines(list(marks), seen)


def test_puts_kinds_and_marks_in_the_order_of_their_versions():
    seen = [("Checkpoint", "ADDED", checkpoint(12)), ("Pod", "ADDED", pod(10)), ("Pod", "DELETED", pod(14))]
    said = [line.get("do") or f"{line['kind']} {line['verb']}" for line in lines(seen, [(11, {"do": "drain", "node": "worker-b"})])]
    assert said == ["Pod ADDED", "drain", "Checkpoint ADDED", "Pod DELETED"]


def test_names_pods_and_checkpoints_by_whose_they_are():
    claim = {"podName": POD["name"], "podUID": POD["uid"], "at": "2026-01-01T00:00:00Z"}
    of_pod, of_checkpoint = lines([("Pod", "ADDED", pod(1, {"nodeName": "worker-b"})), ("Checkpoint", "ADDED", checkpoint(2, claim=claim, term=1712))])
    assert (of_pod["name"], of_pod["node"]) == ("counter-1", "node-2")
    assert (of_checkpoint["name"], of_checkpoint["claim"], of_checkpoint["term"]) == ("checkpoint of counter-1-1", "counter-1", "term-1")


def test_leaves_out_what_did_not_change():
    running = {"phase": "Running", "podIP": "10.0.0.7"}
    seen = [("Pod", "ADDED", pod(1, status=running)), ("Pod", "MODIFIED", pod(2, status={**running, "podIP": "10.0.0.8"})), ("Pod", "DELETED", pod(3, status=running))]
    assert [line["verb"] for line in lines(seen)] == ["ADDED", "DELETED"]


def test_tells_nothing_of_the_machine():
    notes = {"holdfast.dev/restore-skipped": "drain-x on worker-a at 10.0.0.7: /var/lib/x", "holdfast.dev/protect": "true", "other": "10.0.0.7"}
    status = {"podIP": "10.0.0.7", "hostIP": "10.0.0.1", "containerStatuses": [{"name": "c", "containerID": "containerd://ab", "state": {"running": {}}}]}
    event = {"metadata": {"name": "e", "resourceVersion": "3"}, "regarding": {"kind": "Pod", "name": POD["name"]}, "reason": "ColdStart", "note": "10.0.0.7"}
    text = json.dumps(lines([("Pod", "ADDED", pod(2, {"nodeName": "worker-a"}, status, annotations=notes)), ("Event", "ADDED", event)]))
    for word in ("10.0.0", "worker", "x2k4q", "0f-1", "/var", "containerd"):
        assert word not in text
    assert '"restore-skipped": "set"' in text and '"about": "Pod counter-1"' in text


def test_reads_documents_of_one_line_and_of_several():
    assert list(documents(['{"a": {"b": 1}}\n', "{\n", '    "a": {\n', "    }\n", "}\n", '{"c": 2}\n'])) == [{"a": {"b": 1}}, {"a": {}}, {"c": 2}]
