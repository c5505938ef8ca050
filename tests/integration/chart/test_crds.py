"""What the API server accepts and refuses, rule by rule, with the message that the user reads."""

import itertools
import json

import pytest

POD = {"podRef": {"name": "web-0"}}
UNIQUE = itertools.count()
DEADLINE = "deadline must be a duration above 0s and at most 1h, such as 100s or 5m"
TTL = "ttl must be a duration above 0s and at most 87600h"
INTERVAL = "interval must be auto, or a duration from 10s to 8760h such as 10m"
MAX_BYTES = "maxBytes must be a whole number of bytes above 0, such as 50Gi or 1500M"

MEMBER = {"pod": "web-0", "podUID": "u-1", "checkpoint": "one"}
CUT = {"group": "ring", "id": "c-1", "members": [MEMBER]}

ACCEPTED_CHECKPOINTS = [
    {},
    {"cut": {**CUT, "members": [MEMBER] * 32}},
    {"podRef": {"name": "web-0", "uid": "1f0e9a4c-7d0e-4d6b-9d0c-0b7b8b0d9f11"}},
    {"podRef": {"name": "a.b-c.1"}},
    {"containers": ["main", "side"], "final": True, "trigger": "Drain", "deadline": "100s", "pinned": True, "ttl": "72h"},
    *({"deadline": d} for d in ("1ms", "1s", "1.5m", "59m60s", "1h")),
    {"ttl": "87600h"},
    *({"trigger": t} for t in ("Manual", "Interval", "Drain", "Spot", "Preemption", "Suspend", "Idle", "Schedule")),
]

REFUSED_CHECKPOINTS = [
    ({"podRef": {}}, "spec.podRef.name: Required value"),
    ({"podRef": None}, "spec.podRef: Required value"),
    ({"podRef": {"name": ""}}, "spec.podRef.name"),
    ({"podRef": {"name": "Web_0"}}, "podRef.name must be a pod's name"),
    ({"podRef": {"name": "../../etc"}}, "podRef.name must be a pod's name"),
    ({"podRef": {"name": "a" * 254}}, "may not be more than 253"),
    ({"podRef": {"name": "a", "uid": "../x"}}, "podRef.uid must be the pod's metadata.uid"),
    ({"podRef": {"name": "a", "uid": "a" * 64}}, "may not be more than 63"),
    ({"containers": []}, "spec.containers"),
    ({"containers": ["a", "a"]}, "spec.containers[1]: Duplicate value"),
    ({"containers": ["a", "B_c"]}, "containers must name containers of the pod"),
    ({"containers": [f"c{i}" for i in range(65)]}, "must have at most 64 items"),
    *(({"deadline": d}, DEADLINE) for d in ("-5s", "0s", "0h0m", "1h1s", "61m", "abc", "100", "5 m", "99999999999999999999h")),
    ({"deadline": 5}, "must be of type string"),
    *(({"ttl": d}, TTL) for d in ("-1h", "0s", "87601h", "3d")),
    ({"trigger": "Whim"}, 'Unsupported value: "Whim"'),
    ({"final": "yes"}, "must be of type boolean"),
    ({"final": True, "trigger": "Interval"}, "an Interval checkpoint cannot be final"),
    ({"final": True, "cut": CUT}, "a final checkpoint is of no cut"),
    ({"cut": {**CUT, "members": [MEMBER] * 33}}, "must have at most 32 items"),
    ({"cut": {"group": "ring"}}, "Required value"),
]


@pytest.mark.parametrize("spec", ACCEPTED_CHECKPOINTS, ids=str)
def test_a_checkpoint_is_accepted(objects, spec):
    assert objects.create("Checkpoint", {**POD, **spec}) == ""


@pytest.mark.parametrize("spec,message", REFUSED_CHECKPOINTS, ids=str)
def test_a_checkpoint_is_refused(objects, spec, message):
    assert message in objects.create("Checkpoint", {**POD, **spec})


def test_defaults_of_a_checkpoint(server, objects):
    assert objects.create("Checkpoint", POD, name="defaults", dry=False) == ""
    spec = objects.get("checkpoint", "defaults")["spec"]
    assert spec == {**POD, "deadline": "100s", "final": False, "pinned": False, "trigger": "Manual"}


CHANGES = [
    # before, patch, refused with ("" means accepted)
    ({}, {"podRef": {"uid": "u-1"}}, ""),
    ({"podRef": {"name": "web-0", "uid": "u-1"}}, {"podRef": {"uid": "u-2"}}, "podRef.uid is fixed once it is set"),
    ({"podRef": {"name": "web-0", "uid": "u-1"}}, {"podRef": {"uid": None}}, "podRef.uid is fixed once it is set"),
    ({}, {"podRef": {"name": "web-1"}}, "podRef.name cannot be changed"),
    ({}, {"containers": ["a"]}, "containers cannot be changed"),
    ({"containers": ["a"]}, {"containers": ["a", "b"]}, "containers cannot be changed"),
    ({"containers": ["a"]}, {"containers": None}, "containers cannot be changed"),
    ({}, {"final": True}, "final cannot be changed"),
    ({}, {"trigger": "Drain"}, "trigger cannot be changed"),
    ({}, {"deadline": "200s"}, "deadline cannot be changed"),
    ({}, {"pinned": True, "ttl": "1h"}, ""),
    ({}, {"cut": CUT}, ""),
    ({"cut": CUT}, {"cut": {"id": "c-2"}}, "cut cannot be changed once it is set"),
    ({"cut": CUT}, {"cut": None}, "cut cannot be changed once it is set"),
]


@pytest.mark.parametrize("before,patch,message", CHANGES, ids=str)
def test_what_may_change_in_spec(objects, before, patch, message):
    name = f"spec-{next(UNIQUE)}"
    assert objects.create("Checkpoint", {**POD, **before}, name=name, dry=False) == ""
    answer = objects.patch("checkpoint", name, {"spec": patch})
    assert (message in answer) if message else (answer == ""), answer


BACK = "phase cannot go back"
FAILED = "a Failed checkpoint stays Failed"
CLAIMED = "the checkpoint is claimed by another pod"
T1, T2 = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
STATUS_CHANGES = [
    # statuses one after another, and what the last one is refused with ("" means accepted)
    ([{"phase": "Pending"}, {"phase": "Assigned"}, {"phase": "Freezing"}, {"phase": "Dumping"}, {"phase": "Storing"}, {"phase": "Ready"}, {"phase": "Deleting"}], ""),
    ([{"phase": "Storing"}, {"phase": "Freezing"}], ""),
    ([{"phase": "Assigned"}, {"phase": "Failed"}, {"phase": "Deleting"}], ""),
    ([{"phase": "Ready"}, {"phase": "Failed"}], ""),
    ([{"phase": "Ready"}, {"phase": "Assigned"}], BACK),
    ([{"phase": "Ready"}, {"phase": "Storing"}], BACK),
    ([{"phase": "Ready"}, {"phase": None}], BACK),
    ([{"phase": "Freezing"}, {"phase": "Assigned"}], BACK),
    ([{"phase": "Assigned"}, {"phase": "Pending"}], BACK),
    ([{"phase": "Deleting"}, {"phase": "Ready"}], BACK),
    ([{"phase": "Failed"}, {"phase": "Ready"}], FAILED),
    ([{"phase": "Melting"}], "Unsupported value"),
    ([{"claim": {"podName": "a", "podUID": "p1"}}, {"claim": {"podUID": "p1", "at": "2026-01-02T03:04:05Z"}}], ""),
    ([{"claim": {"podUID": "p1"}}, {"claim": {"podUID": "p2"}}], CLAIMED),
    ([{"claim": {"podUID": "p1"}}, {"claim": None}, {"claim": {"podUID": "p2"}}], ""),
    ([{"claim": {"podName": "a"}}], "status.claim.podUID: Required value"),
    ([{"nodeName": "node1"}, {"nodeName": "node2"}], "nodeName cannot be changed once it is set"),
    ([{"term": 7}, {"term": 6}], "a controller of a later term of leadership has written this status"),
    ([{"term": 7}, {"term": None}], "a controller of a later term of leadership has written this status"),
    ([{"deadlineAt": "2100-01-01T00:00:00Z"}, {"deadlineAt": "2100-01-01T00:01:00Z"}], "deadlineAt cannot be changed once it is set"),  # hole 5
    ([{"podUID": "a"}, {"podUID": "b"}], "podUID cannot be changed once it is set"),
    ([{"manifest": {"id": "a"}}, {"manifest": {"id": "b"}}], "manifest cannot be replaced by another one"),
    ([{"manifest": {"id": "a", "store": "s"}}, {"manifest": {"id": "a", "store": "t"}}], "manifest cannot be replaced by another one"),
    ([{"manifest": {"id": "a", "store": "s"}}, {"manifest": {"id": "a", "store": None}}], "manifest cannot be replaced by another one"),
    ([{"manifest": {"id": "a"}}, {"manifest": {"id": "a", "store": "s"}}], ""),
    ([{"restores": [{"podName": "a", "outcome": "Restored", "seconds": 0.5}] * 64}], ""),
    ([{"restores": [{"podName": "a"}] * 65}], "must have at most 64 items"),
    ([{"restores": [{"outcome": "Perhaps"}]}], "Unsupported value"),
    ([{"barrier": {"frozenAt": T1}}, {"barrier": {"allFrozenAt": T2}}], ""),
    ([{"barrier": {"allFrozenAt": T2}}], "a pod that is not frozen does not go through"),
    ([{"barrier": {"frozenAt": T1, "allFrozenAt": T2}}, {"barrier": None}], "barrier.allFrozenAt cannot be taken back"),
    ([{"barrier": {"frozenAt": T1, "allFrozenAt": T1}}, {"barrier": {"allFrozenAt": T2}}], "barrier.allFrozenAt cannot be taken back"),
    ([{"barrier": {"frozenAt": T1, "allFrozenAt": T1}}, {"barrier": {"dumpedAt": T2}}, {"barrier": {"allDumpedAt": T2}}], ""),
    ([{"barrier": {"frozenAt": T1, "dumpedAt": T2}}], "nobody is dumped before all of its group are frozen"),
    ([{"barrier": {"frozenAt": T1, "allFrozenAt": T1, "allDumpedAt": T2}}, {"barrier": {"allDumpedAt": None}}], "barrier.allDumpedAt cannot be taken back"),
    ([{"progress": {"bytes": -1}}], "should be greater than or equal to 0"),
    ([{"startedAt": "yesterday"}], "must be of type date-time"),
    ([{"conditions": [{"type": "Ready"}]}], "Required value"),
]


@pytest.mark.parametrize("steps,message", STATUS_CHANGES, ids=str)
def test_what_may_change_in_status(objects, steps, message):
    name = f"status-{next(UNIQUE)}"
    assert objects.create("Checkpoint", POD, name=name, dry=False) == ""
    for step in steps[:-1]:
        assert objects.status(name, step) == ""
    answer = objects.status(name, steps[-1])
    assert (message in answer) if message else (answer == ""), answer


FULL_STATUS = {
    "phase": "Ready",
    "conditions": [{"type": "Ready", "status": "True", "reason": "Completed", "message": "stored", "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
    "nodeName": "node7",
    "podUID": "u-1",
    "owner": {"kind": "Deployment", "name": "web", "uid": "o-1", "templateHash": "abc", "ordinal": "0"},
    "startedAt": "2026-01-02T03:04:05Z",
    "completedAt": "2026-01-02T03:04:06Z",
    "size": {"memory": 314572800, "files": 4096, "stored": 1000000},
    "barrier": {"frozenAt": T1, "allFrozenAt": T1, "dumpedAt": T2, "allDumpedAt": T2},
    "timings": {"frozen": "410ms", "barrier": "90ms", "dump": "300ms", "store": "1.2s"},
    "progress": {"bytes": 5, "total": 10},
    "summary": {"size": "300Mi", "stored": "977Ki"},
    "platform": {"arch": "amd64", "cpuFeatures": ["avx2"], "gpu": {"product": "none", "count": 0}, "later": {"deep": [1]}},
    "containers": [{"name": "main", "image": "i:1", "imageDigest": "sha256:0", "pages": 76800, "restorable": True, "reason": ""}],
    "manifest": {"store": "holdfast-store-0", "id": "m-1", "digest": "blake3:00"},
    "claim": {"podName": "web-1", "podUID": "u-2", "at": "2026-01-02T03:04:07Z"},
    "restores": [{"podName": "web-1", "node": "node2", "at": "2026-01-02T03:04:08Z", "outcome": "Restored", "seconds": 0.48, "reason": ""}],
}


@pytest.fixture(scope="module")
def full(objects):
    assert objects.create("Checkpoint", POD, name="full", dry=False) == ""
    assert objects.status("full", FULL_STATUS) == ""
    return objects.get("checkpoint", "full")


def test_no_field_of_status_is_dropped(full):
    assert full["status"] == FULL_STATUS


def test_a_checkpoints_columns(server, full):
    lines = server.kubectl("get", "ckpt", "full").stdout.splitlines()
    assert lines[0].split() == ["NAME", "POD", "TRIGGER", "PHASE", "FROZEN", "SIZE", "STORED", "AGE"]
    assert lines[1].split()[:7] == ["full", "web-0", "Manual", "Ready", "410ms", "300Mi", "977Ki"]
    wide = server.kubectl("get", "holdfast", "-o", "wide").stdout
    assert "CLAIMED BY" in wide and "web-1" in wide and "Completed" in wide


def test_checkpoints_are_selected_by_node_owner_claimant_and_phase(server, objects, full):
    def selected(selector):
        return "full" in [item["metadata"]["name"] for item in objects.get("checkpoints", "--field-selector", selector)["items"]]

    status = full["status"]
    for path, value in (("nodeName", status["nodeName"]), ("owner.uid", status["owner"]["uid"]), ("claim.podUID", status["claim"]["podUID"]), ("phase", status["phase"])):
        assert selected(f"status.{path}={value}") and not selected(f"status.{path}=other") and not selected(f"status.{path}="), path
    assert server.kubectl("get", "checkpoints", "--field-selector", "spec.trigger=Manual").returncode != 0


ACCEPTED_POLICIES = [
    {},
    {"selector": {}},
    {"selector": {"matchLabels": {"app.kubernetes.io/name": "web"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "Exists"}]}},
    {"triggers": {"drain": True, "stop": False, "spot": True, "preemption": True}},
    *({"triggers": {"interval": i}} for i in ("auto", "10s", "10m", "1h30m")),
    {"restore": {"onFailure": "Retry", "attempts": 10, "maxAge": "24h", "onCrash": "Latest", "onNodeLost": "Assume", "volumes": "Snapshot"}},
    *({"network": {"established": e}} for e in ("KeepLoopback", "CloseAll")),
    {"retention": {"keepLast": 1, "keepWithin": "24h", "keepDaily": 7, "maxBytes": "50Gi", "keepOrphans": "10m", "dryRun": True}},
    *({"retention": {"maxBytes": b}} for b in (1, 1048576, "1", "1500M", "100Ti", "8191Pi")),
]

REFUSED_POLICIES = [
    ({"selector": {"matchLabels": {"a b": "x"}}}, "every key must be a label's name"),
    ({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "values must be given for In and NotIn"),
    ({"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}}, "values must be given for In and NotIn"),
    ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["x"]}]}}, "Unsupported value"),
    *(({"triggers": {"interval": i}}, INTERVAL) for i in ("9s", "-10m", "0s", "often", "8761h")),
    ({"restore": {"onFailure": "Pray"}}, "Unsupported value"),
    ({"restore": {"attempts": 0}}, "should be greater than or equal to 1"),
    ({"restore": {"attempts": 11}}, "should be less than or equal to 10"),
    ({"restore": {"maxAge": "-24h"}}, "maxAge must be a duration above 0s"),
    ({"restore": {"onCrash": "Retry"}}, "Unsupported value"),
    ({"restore": {"onNodeLost": "Guess"}}, "Unsupported value"),
    ({"restore": {"volumes": "Any"}}, "Unsupported value"),
    ({"network": {"established": "KeepAll"}}, "Unsupported value"),
    ({"retention": {"keepLast": 0}}, "should be greater than or equal to 1"),
    ({"retention": {"keepDaily": -1}}, "should be greater than or equal to 0"),
    ({"retention": {"keepWithin": "1w"}}, "keepWithin must be a duration above 0s"),
    *(({"retention": {"keepOrphans": d}}, "keepOrphans must be a duration from 10m") for d in ("9m", "-1h", "87601h", "1w")),
    *(({"retention": {"maxBytes": b}}, MAX_BYTES) for b in (0, -1, "0", "-1Gi", "1.5Gi", "lots", "9999999999Pi")),
]


@pytest.mark.parametrize("spec", ACCEPTED_POLICIES, ids=str)
def test_a_policy_is_accepted(objects, spec):
    assert objects.create("RestorePolicy", spec) == ""


@pytest.mark.parametrize("spec,message", REFUSED_POLICIES, ids=str)
def test_a_policy_is_refused(objects, spec, message):
    assert message in objects.create("RestorePolicy", spec)


def test_defaults_and_columns_of_a_policy(server, objects):
    assert objects.create("RestorePolicy", {}, name="standard", dry=False) == ""
    assert objects.get("rp", "standard")["spec"] == {
        "network": {"established": "KeepLoopback"},
        "restore": {"attempts": 3, "onCrash": "ColdStart", "onFailure": "ColdStart", "onNodeLost": "Confirm", "volumes": "FinalOnly"},
        "retention": {"dryRun": False, "keepLast": 3, "keepOrphans": "168h"},
        "triggers": {"drain": True, "preemption": False, "spot": True, "stop": True},
    }
    status = {"matched": 4, "protected": 3, "unprotected": [{"pod": "web-3", "reason": "restart to protect"}], "lastCheckpoint": "drain-web-0", "stored": 1503238553, "summary": {"stored": "1.4Gi"},
              "retention": {"kept": 1, "keeps": [{"checkpoint": "drain-web-0", "reason": "LastGood", "message": "the last good one"}],
                            "deleted": 1, "deletes": [{"checkpoint": "old", "reason": "Superseded", "message": "no rule keeps it"}], "overBytes": 0},
              "conditions": [{"type": "Accepted", "status": "True", "reason": "Valid", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}
    assert objects.patch("rp", "standard", {"status": status}, subresource="status") == ""
    assert objects.get("rp", "standard")["status"] == status
    lines = server.kubectl("get", "rp", "standard").stdout.splitlines()
    assert lines[0].split() == ["NAME", "MATCHED", "PROTECTED", "LAST", "STORED", "AGE"]
    assert lines[1].split()[:5] == ["standard", "4", "3", "drain-web-0", "1.4Gi"]


NB = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nb"}}
LAB = {"targetRef": {"apiVersion": "v1", "kind": "Pod", "name": "lab"}}
ACCEPTED_SUSPENDED = [
    NB,
    {"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}, "state": "Suspended", "onDelete": "Keep"},
    {"targetRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}, "state": "Running", "onDelete": "Resume"},
    LAB,
    {**LAB, "onDelete": "Resume", "idle": {"after": "30m"}},
    {**NB, "schedule": {"suspend": "0 20 * * 1-5", "resume": "*/5 7,8 1-7/2 jan-mar mon", "timeZone": "America/Argentina/Buenos_Aires"}},
    *({**NB, "schedule": {"suspend": "0 20 * * *", "timeZone": z}} for z in ("UTC", "Etc/GMT+5", "Europe/Prague")),
    *({**NB, "idle": {"after": a}} for a in ("10s", "30m", "1h30m", "720h")),
    {**NB, "idle": {"after": "30m", "signals": {"jupyter": {}, "cpu": {"below": "0.05"}}}},
    {**NB, "resume": {"onRequest": {"service": "nb"}}},
    {**NB, "resume": {"onRequest": {"service": "nb", "holdFor": "30m", "ignore": {"userAgents": ["GoogleHC/"], "paths": ["/healthz"]}}}},
]
REFUSED_SUSPENDED = [
    ({}, "spec.targetRef: Required value"),
    ({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}}, "spec.targetRef.name: Required value"),
    ({"targetRef": {**NB["targetRef"], "kind": "DaemonSet"}}, "Unsupported value"),
    ({"targetRef": {**NB["targetRef"], "apiVersion": "batch/v1"}}, "apiVersion must be apps/v1 for a Deployment or StatefulSet"),
    ({"targetRef": {**NB["targetRef"], "kind": "Job"}}, "apiVersion must be apps/v1 for a Deployment or StatefulSet"),
    ({"targetRef": {**NB["targetRef"], "name": "../nb"}}, "targetRef.name must be the workload's name"),
    ({"targetRef": {**NB["targetRef"], "name": "a" * 254}}, "may not be more than 253"),
    ({"targetRef": {**LAB["targetRef"], "apiVersion": "apps/v1"}}, "and v1 for a Pod"),
    ({**LAB, "onDelete": "Keep"}, "onDelete of a Pod must be Resume"),
    ({**LAB, "resume": {"onRequest": {"service": "lab"}}}, "resume.onRequest is for a Deployment, StatefulSet or Job"),
    ({**NB, "state": "Asleep"}, "Unsupported value"),
    ({**NB, "onDelete": "Forget"}, "Unsupported value"),
    ({**NB, "resume": {"onRequest": {}}}, "spec.resume.onRequest.service: Required value"),
    *(({**NB, "resume": {"onRequest": {"service": s}}}, "service must be the name of a Service") for s in ("Nb", "../nb", "nb.other", "-nb")),
    *(({**NB, "resume": {"onRequest": {"service": "nb", "holdFor": h}}}, "holdFor must be a duration from 1s to 30m") for h in ("0s", "31m", "60", "-1m")),
    ({**NB, "resume": {"onRequest": {"service": "nb", "ignore": {"paths": [""]}}}}, "should be at least 1 chars long"),
    ({**NB, "idle": {}}, "spec.idle.after: Required value"),
    *(({**NB, "idle": {"after": a}}, "after must be a duration from 10s to 720h") for a in ("9s", "721h", "30", "-30m", "a while", "1.5h", "30ms")),
    *(({**NB, "idle": {"after": "30m", "signals": {"cpu": {"below": b}}}}, "below must be a quantity of CPU from 1m to 1000") for b in ("0", "-1", "0.1m", "1001", "much")),
    *(({**NB, "idle": {"after": "30m", "signals": {"gpu": {"utilBelow": u}}}}, "spec.idle.signals.gpu.utilBelow: Invalid value") for u in (0, 101, "2", 1.5)),
    ({**NB, "idle": {"after": "30m", "signals": {"network": {}}}}, 'unknown field "spec.idle.signals.network"'),
    ({**NB, "schedule": {}}, "schedule must have suspend or resume"),
    *(({**NB, "schedule": {"suspend": s}}, "suspend must have five fields") for s in ("0 20 * * ", "0 20 * * * *", "0 20 * * mon;", "every day at 8 pm.")),
    ({**NB, "schedule": {"resume": "@daily --"}}, "resume must have five fields"),
    *(({**NB, "schedule": {"resume": "0 7 * * *", "timeZone": z}}, "timeZone must be a name of the tz database") for z in ("../etc", "/Europe/Prague", "Europe/", "Mars City")),
]


@pytest.mark.parametrize("spec", ACCEPTED_SUSPENDED, ids=str)
def test_a_suspended_workload_is_accepted(objects, spec):
    assert objects.create("SuspendedWorkload", spec) == ""


@pytest.mark.parametrize("spec,message", REFUSED_SUSPENDED, ids=str)
def test_a_suspended_workload_is_refused(objects, spec, message):
    assert message in objects.create("SuspendedWorkload", spec)


def test_what_a_suspended_workload_names_cannot_be_changed(objects):
    assert objects.create("SuspendedWorkload", NB, name="fixed", dry=False) == ""
    assert "targetRef cannot be changed" in objects.patch("sw", "fixed", {"spec": {"targetRef": {"name": "other"}}})
    assert objects.patch("sw", "fixed", {"spec": {"state": "Suspended", "onDelete": "Keep"}}) == ""


SUSPENDED_STATUS = {
    "phase": "Suspended",
    "observedGeneration": 2,
    "overriddenGeneration": 1,
    "overriddenAt": "2026-01-02T03:04:04Z",
    "replicas": 3,
    "checkpoints": [{"pod": "db-0", "podUID": "u-1", "ordinal": "0", "checkpoint": "suspend-db-0-u-1"}],
    "durable": True,
    "sealedPod": "AAAA",
    "freed": {"cpu": "1500m", "memory": "360Mi", "gpu": "1", "costPerHour": "0.0618 USD"},
    "suspendedAt": "2026-01-02T03:04:05Z",
    "lastActivity": "2026-01-02T02:30:00Z",
    "attempt": {"startedAt": "2026-01-02T03:04:01Z", "failures": 1, "retryAt": "2026-01-02T03:04:02Z", "reason": "DumpFailed", "message": "why"},
    "conditions": [{"type": "Suspended", "status": "True", "reason": "Suspended", "message": "it sleeps", "observedGeneration": 2, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
}


def test_defaults_status_and_columns_of_a_suspended_workload(server, objects):
    assert objects.create("SuspendedWorkload", NB, name="nb", dry=False) == ""
    assert objects.get("sw", "nb")["spec"] == {**NB, "state": "Running", "onDelete": "Resume"}
    assert objects.patch("sw", "nb", {"status": SUSPENDED_STATUS}, subresource="status") == ""
    assert objects.get("sw", "nb")["status"] == SUSPENDED_STATUS
    lines = server.kubectl("get", "sw", "nb").stdout.splitlines()
    assert lines[0].split() == ["NAME", "KIND", "TARGET", "STATE", "PHASE", "CPU", "MEMORY", "ASLEEP", "AGE"]
    assert lines[1].split()[:7] == ["nb", "Deployment", "nb", "Running", "Suspended", "1500m", "360Mi"]
    wide = server.kubectl("get", "sw", "nb", "-o", "wide").stdout.splitlines()
    assert wide[0].split()[-4:] == ["GPU", "COST/HOUR", "REPLICAS", "REASON"] and wide[1].split()[-5:] == ["1", "0.0618", "USD", "3", "Suspended"]


def test_a_suspended_workload_holds_at_most_as_many_pods_as_its_status_takes(objects):
    assert objects.create("SuspendedWorkload", NB, name="large", dry=False) == ""
    pod = {"pod": "p", "podUID": "u", "checkpoint": "c"}
    assert objects.patch("sw", "large", {"status": {"checkpoints": [pod] * 256}}, subresource="status") == ""
    assert "must have at most 256 items" in objects.patch("sw", "large", {"status": {"checkpoints": [pod] * 257}}, subresource="status")


def test_every_schema_is_structural_and_established(objects):
    for crd in ("checkpoints.holdfast.dev", "restorepolicies.holdfast.dev", "suspendedworkloads.holdfast.dev"):
        conditions = {c["type"]: c["status"] for c in objects.get("crd", crd)["status"]["conditions"]}
        assert conditions["Established"] == "True" and conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions, json.dumps(conditions)
