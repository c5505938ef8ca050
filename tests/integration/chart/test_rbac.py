"""Least privilege, asked of the API server's own authorizer: what each part may do, and the nearest things that it may not."""

import pytest
from conftest import SYSTEM

# part, verb, resource (subresource after /), namespace, name, allowed
QUESTIONS = [
    ("agent", "create", "nodes/checkpoint", "", "", True),
    ("agent", "get", "nodes", "", "", True),
    ("agent", "patch", "nodes", "", "", True),
    ("agent", "watch", "pods", "", "", True),
    ("agent", "watch", "checkpoints.holdfast.dev", "", "", True),
    ("agent", "patch", "checkpoints.holdfast.dev/status", "default", "", True),
    ("agent", "create", "events.events.k8s.io", "default", "", True),
    ("agent", "update", "checkpoints.holdfast.dev/status", "default", "", True),
    ("agent", "patch", "checkpoints.holdfast.dev", "default", "", False),
    ("agent", "get", "restorepolicies.holdfast.dev", "default", "", False),
    ("agent", "create", "nodes/proxy", "", "", False),
    ("agent", "get", "nodes/proxy", "", "", False),
    ("agent", "delete", "nodes", "", "", False),
    ("agent", "get", "secrets", "default", "", False),
    ("agent", "get", "secrets", SYSTEM, "holdfast-store-tls", False),
    ("agent", "patch", "pods", "default", "", False),
    ("agent", "delete", "pods", "default", "", False),
    ("agent", "create", "pods/exec", "default", "", False),
    ("agent", "create", "pods/eviction", "default", "", False),
    ("agent", "create", "checkpoints.holdfast.dev", "default", "", False),
    ("agent", "delete", "checkpoints.holdfast.dev", "default", "", False),
    ("agent", "create", "serviceaccounts/token", SYSTEM, "", False),
    ("controller", "patch", "pods", "default", "", True),
    ("controller", "create", "pods/eviction", "default", "", True),
    ("controller", "create", "checkpoints.holdfast.dev", "default", "", True),
    ("controller", "patch", "checkpoints.holdfast.dev/status", "default", "", True),
    ("controller", "watch", "poddisruptionbudgets.policy", "", "", True),
    ("controller", "watch", "statefulsets.apps", "", "", True),
    ("controller", "get", "secrets", SYSTEM, "holdfast-ca", True),
    ("controller", "update", "secrets", SYSTEM, "holdfast-webhook-tls", True),
    ("controller", "update", "secrets", SYSTEM, "holdfast-store-tls", True),
    ("controller", "create", "leases.coordination.k8s.io", SYSTEM, "", True),
    ("controller", "update", "leases.coordination.k8s.io", SYSTEM, "holdfast-controller", True),
    ("controller", "update", "leases.coordination.k8s.io", SYSTEM, "another", False),
    ("controller", "patch", "restorepolicies.holdfast.dev/status", "default", "", True),
    ("controller", "patch", "restorepolicies.holdfast.dev", "default", "", False),
    ("controller", "patch", "configmaps", SYSTEM, "holdfast-ca", True),
    ("controller", "patch", "configmaps", SYSTEM, "kube-root-ca.crt", False),
    ("controller", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "holdfast", True),
    ("controller", "get", "secrets", SYSTEM, "sh.helm.release.v1.holdfast.v1", False),
    ("controller", "list", "secrets", SYSTEM, "", False),
    ("controller", "get", "secrets", "default", "holdfast-ca", False),
    ("controller", "create", "secrets", "default", "", False),
    ("controller", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "another", False),
    ("controller", "delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "holdfast", False),
    ("controller", "patch", "nodes", "", "", False),
    ("controller", "create", "nodes/checkpoint", "", "", False),
    ("controller", "create", "pods", "default", "", False),
    ("controller", "delete", "pods", "default", "", False),
    ("controller", "create", "pods/exec", "default", "", False),
    ("controller", "patch", "deployments.apps", "default", "", False),
    ("controller", "create", "leases.coordination.k8s.io", "kube-system", "", False),
    ("store", "create", "tokenreviews.authentication.k8s.io", "", "", True),
    ("store", "get", "pods", "default", "", True),  # where the pod runs that has claimed a checkpoint
    ("store", "list", "pods", "default", "", False),
    ("store", "list", "checkpoints.holdfast.dev", "default", "", True),
    ("store", "patch", "checkpoints.holdfast.dev", "default", "", False),
    ("store", "patch", "checkpoints.holdfast.dev/status", "default", "", False),
    ("store", "get", "secrets", SYSTEM, "", False),
    ("store", "create", "subjectaccessreviews.authorization.k8s.io", "", "", False),
]


@pytest.mark.parametrize("part,verb,resource,namespace,name,allowed", QUESTIONS, ids=lambda value: str(value) or "-")
def test_who_may_do_what(installed, part, verb, resource, namespace, name, allowed):
    resource, _, subresource = resource.partition("/")
    args = ["auth", "can-i", verb, f"{resource}/{name}" if name else resource, f"--as=system:serviceaccount:{SYSTEM}:holdfast-{part}"]
    args += [f"--subresource={subresource}"] if subresource else []
    args += ["-n", namespace] if namespace else ["--all-namespaces"]
    done = installed.kubectl(*args)
    assert done.stdout.strip() == ("yes" if allowed else "no"), done.stderr


def test_nobody_holds_a_wildcard(installed):
    for kind in ("clusterrole", "role"):
        done = installed.kubectl("get", kind, "-n", SYSTEM, "-l", "app.kubernetes.io/name=holdfast", "-o", "jsonpath={.items[*].rules}")
        assert done.returncode == 0 and "holdfast" in done.stdout, done.stderr
        assert "*" not in done.stdout
