"""What record.py has seen, reduced to what the simulation can have too: stable names, and the fields that matter, of every change of them."""

import json

PREFIX = "holdfast.dev/"
# Values that are words of the contract, or names; of the others only that they are there.
SPOKEN = {"protect", "policy", "group", "containers", "restore", "from-checkpoint"}


class Normaliser:
    """Holds the names: of pods by Deployment and order of appearance, of Checkpoints by their pod, of nodes and terms by order."""

    def __init__(self, workers):
        self.nodes = {name: f"node-{i + 1}" for i, name in enumerate(workers)}
        self.pods, self.checkpoints, self.sets, self.terms, self.counts = {}, {}, {}, {}, {}

    def next(self, base):
        self.counts[base] = self.counts.get(base, 0) + 1
        return f"{base}-{self.counts[base]}"

    def node(self, name):
        return self.nodes.get(name, "another node") if name else ""

    def pod(self, thing):
        meta = thing["metadata"]
        name = self.pods.get(meta["uid"]) or self.next(meta.get("labels", {}).get("app", "pod"))
        self.pods[meta["uid"]] = self.pods[meta["name"]] = name
        return name

    def checkpoint(self, thing):
        name = thing["metadata"]["name"]
        if name not in self.checkpoints:
            of = thing["spec"]["podRef"]
            pod = self.pods.get(of.get("uid")) or self.pods.get(of["name"], "a pod")
            self.checkpoints[name] = self.next(f"checkpoint of {pod}")
        return self.checkpoints[name]

    def replica_set(self, thing):
        name = thing["metadata"]["name"]
        if name not in self.sets:
            self.sets[name] = self.next(f"set of {thing['metadata'].get('labels', {}).get('app', 'something')}")
        return self.sets[name]

    def named(self, name):
        return self.pods.get(name) or self.checkpoints.get(name) or self.sets.get(name) or self.nodes.get(name) or "something else"

    def lines(self, marks, seen):
        """In the order of resource versions, which one etcd gives to all kinds; without what did not change."""
        changes = [(version, 0, ("Mark", "", what)) for version, what in marks]
        changes += [(int(thing["metadata"]["resourceVersion"]), 1, (kind, verb, thing)) for kind, verb, thing in seen]
        changes.sort(key=lambda change: change[:2])
        out, last = [], {}
        for _, _, (kind, verb, thing) in changes:
            if kind == "Mark":
                out.append({**thing, **({"node": self.node(thing["node"])} if "node" in thing else {})})
                continue
            read = getattr(self, "of_" + kind.lower())(thing)
            if read is None:
                continue
            name, fields = read
            line = {"kind": kind, "name": name, "verb": verb, **fields}
            if verb != "DELETED" and last.get((kind, name)) == fields:
                continue
            last[(kind, name)] = fields
            out.append(line)
        return out

    # --- kinds: (name, fields), or nothing for what is left out ----------------------------------------------------------------------

    def of_pod(self, pod):
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        if meta.get("labels", {}).get("app") == "witness":
            return None
        name = self.pod(pod)
        annotations = {}
        for key, value in sorted(meta.get("annotations", {}).items()):
            if key.startswith(PREFIX):
                short = key.removeprefix(PREFIX)
                annotations[short] = (self.checkpoints.get(value, value) if short in SPOKEN else "set")
        return name, {
            "gates": [g["name"] for g in spec.get("schedulingGates", [])],
            "node": self.node(spec.get("nodeName")),
            "class": spec.get("runtimeClassName", ""),
            "phase": status.get("phase", ""),
            "deleting": "deletionTimestamp" in meta,
            "finalizers": meta.get("finalizers", []),
            "annotations": annotations,
            "conditions": {c["type"]: "/".join(filter(None, (c["status"], c.get("reason")))) for c in status.get("conditions", [])},
            "init": [container(c) for c in status.get("initContainerStatuses", [])],
            "containers": [container(c) for c in status.get("containerStatuses", [])],
        }

    def of_checkpoint(self, checkpoint):
        meta, spec, status = checkpoint["metadata"], checkpoint["spec"], checkpoint.get("status", {})
        name, term = self.checkpoint(checkpoint), status.get("term")
        if term is not None:
            self.terms.setdefault(term, f"term-{len(self.terms) + 1}")
        claim = status.get("claim") or {}
        return name, {
            "trigger": spec.get("trigger", ""),
            "final": spec.get("final", False),
            "phase": status.get("phase", ""),
            "conditions": {c["type"]: "/".join(filter(None, (c["status"], c.get("reason")))) for c in status.get("conditions", [])},
            "node": self.node(status.get("nodeName")),
            "term": self.terms.get(term, ""),
            "pod": self.pods.get(status.get("podUID"), ""),
            "claim": self.pods.get(claim.get("podUID"), "a pod") if claim else "",
            "manifest": "manifest" in status,
            "restorable": {c["name"]: c.get("restorable", False) for c in status.get("containers", [])},
            "restores": [
                {"pod": self.pods.get(r.get("podUID"), "a pod"), "node": self.node(r.get("node")), "outcome": r.get("outcome", ""), "ran": r.get("ran", False)}
                for r in status.get("restores", [])
            ],
            "finalizers": meta.get("finalizers", []),
            "deleting": "deletionTimestamp" in meta,
            "owners": [o["kind"] for o in meta.get("ownerReferences", [])],
            "has": sorted(key for key in status if key not in ("progress", "claim", "restores", "deadlineAt", "queue")),
        }

    def of_replicaset(self, one):
        if one["metadata"].get("labels", {}).get("app") == "witness":
            return None
        status = one.get("status", {})
        return self.replica_set(one), {"wanted": one["spec"].get("replicas", 0), "there": status.get("replicas", 0)}

    def of_node(self, node):
        name = node["metadata"]["name"]
        return (self.nodes[name], {"cordoned": node["spec"].get("unschedulable", False)}) if name in self.nodes else None

    def of_event(self, event):
        about = event.get("regarding") or event.get("involvedObject") or {}
        if "witness" in about.get("name", ""):
            return None
        by = event.get("reportingController") or event.get("deprecatedSource", {}).get("component", "")
        fields = {"about": f"{about.get('kind', '')} {self.named(about.get('name'))}", "reason": event.get("reason", ""), "type": event.get("type", "")}
        return json.dumps([fields["about"], fields["reason"]]), {**fields, "by": by}


def container(status):
    state = next(iter(status.get("state", {}) or {"waiting": {}}))
    reason = status.get("state", {}).get(state, {}).get("reason", "")
    return {"name": status["name"], "state": "/".join(filter(None, (state, reason))), "ready": status.get("ready", False), "restarts": status.get("restartCount", 0)}
